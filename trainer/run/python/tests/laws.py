"""The cases of test_units.py about the laws of leases, rounds, state and checkpoints.

Each runs in a world of one.
"""

import errno
import glob
import os
import sys
from types import SimpleNamespace

import torch

import elasticdl
from elasticdl import leases, rounds, saving, session, states


def permutation_is_kept():
    """Check that the permutation is the same as in older versions.

    Checkpoints of open epochs depend on it.
    """
    assert [leases.permute(i, 10, 0) for i in range(10)] == [5, 6, 7, 3, 2, 9, 8, 4, 1, 0]
    assert [leases.permute(i, 1000, 5) for i in (0, 1, 500, 999)] == [426, 541, 442, 435]
    data = leases.DataSet(10**9, seed=7)
    assert [data.index(3, i) for i in (0, 12345, 10**9 - 1)] == [45728364, 314250963, 612457231]
    assert leases.DataSet(10, shuffle=False).index(3, 4) == 4


def default_tasks():
    """Check the default of records_per_task: at most 64 tasks, but at most 4096 records in each."""
    for size, task in (
        (1, 1),
        (63, 1),
        (64, 1),
        (65, 2),
        (128, 2),
        (129, 3),
        (6400, 100),
        (6401, 101),
        (262144, 4096),
        (10**9, 4096),
    ):
        assert leases.DataSet(size).records_per_task == task, size
    assert leases.DataSet(100, records_per_task=7).records_per_task == 7
    for wrong in (dict(size=0), dict(size=-1), dict(size=1, epochs=0)):
        try:
            leases.DataSet(**wrong)
        except elasticdl.Error as e:
            assert "at least 1" in str(e)
        else:
            raise AssertionError(wrong)


class Grants:
    """A source of leases that grants tasks of ten records, in order."""

    def __init__(self, tasks=100):
        self.tasks, self.next, self.told = tasks, 0, []

    def declare(self, data):
        pass

    def grant(self):
        if self.next == self.tasks:
            return {"over": True}
        n = self.next
        self.next += 1
        return {"lease": n + 1, "epoch": 0, "number": n, "start": 10 * n, "end": 10 * n + 10, "done": 0}

    def had(self, progress):
        self.told += progress


def book(tasks=100):
    b = leases.Book(Grants(tasks))
    b.declare(leases.DataSet(1000, shuffle=False, records_per_task=10))
    return b


def returned_records():
    """Check that given back records are taken again, and that no credited record is lost."""
    for done, credited in ((3, 3), (5, 5), (7, 5)):
        b = book()
        lease = b.ask([], {(0, 0): 5})
        assert (lease.credited, lease.taken) == (5, 5)
        assert lease.take(3)[0] == [5, 6, 7]
        turn = lease.turn
        lease.back(turn, done)
        assert (lease.credited, lease.taken, lease.reported, lease.turn, lease.given) == (
            credited,
            done,
            done,
            turn + 1,
            False,
        )
        assert lease.take(1) == ([done], rounds.Credit(0, 0, done, done + 1))
        lease.back(turn, 0)  # that turn is over
        assert lease.taken == done + 1


def rewound():
    """Check that a new world asks for leases again, and gives back records not in its state."""
    b = book(2)
    b.take(30, 16, [], {})
    assert b.ended and b.ask([], {}) is None
    b._source.next = 1
    b.rewind({(0, 0): 10, (0, 1): 4})
    assert [(h.number, h.credited, h.taken) for h in b.held] == [(1, 4, 4)] and b._source.told == [[1, 10], [2, 4]]
    assert not b.ended and b.news() and not b.news()
    b.void(3)
    # lease 2 is granted again: it is below the floor
    assert b.held == [] and b.ask([], {}) is None
    b = book()
    for _ in range(3):
        b.ask([], {}).given = True
    b.void(2)
    assert [h.id for h in b.held] == [2, 3]


def batches():
    """Check that a batch has no more records than requested, and no more leases than a header."""
    b = book()
    indices, credits = b.take(25, 2, [], {})
    assert len(credits) == 2 and indices == list(range(20))
    indices, credits = b.take(25, 16, [], {})
    assert indices == list(range(20, 45)) and credits[-1] == rounds.Credit(0, 4, 0, 5)
    assert b.take(25, 16, [], {})[0] == list(range(45, 70))
    assert b.credit({(0, 0): 10, (0, 1): 3}) == [[1, 10], [2, 3]] and [h.number for h in b.held][:2] == [1, 2]
    assert b.credit({(0, 0): 10, (0, 1): 3}) == []


def alone(round=0):
    """Return the session of a world of one."""
    session._session = s = session.Session("gloo", None)
    s.form()
    s.round = round
    return s


def half_a_round():
    """Check that a state in the middle of a round counts as one round older."""
    s = alone()
    assert s._arrival() == -1
    s.live = True
    for count, half, want in ((0, False, 0), (0, True, 0), (7, False, 7), (7, True, 6)):
        s.round, s.half = count, half
        assert s._arrival() == want
    s.half = True
    s.commit()
    assert (s.round, s.half, s._arrival()) == (8, False, 8)
    s.live, s.loaded = False, dict
    assert s._arrival() == 8


def settled_epochs():
    """Check that settled epochs are removed from the ledger, and open ones stay."""
    s = alone()
    s.ledger = {(0, 0): 1, (1, 0): 2, (2, 5): 3}
    s.settle(1)
    assert (s.settled, s.ledger) == (1, {(1, 0): 2, (2, 5): 3})
    s.settle(0)
    assert (s.settled, len(s.ledger)) == (1, 2)
    s.settle(2)
    assert s.ledger == {(2, 5): 3} and s._ledger_rows() == [[2, 5, 3]]


def older_than_its_world():
    """Check that a process with an older state reports that state until it has the world's."""
    s = alone()
    s.link, s._recalled = SimpleNamespace(inode=0), 3  # that world is over before it is made
    s.settled, s.ledger = 1, {(1, 0): 2}
    assert not s._enter({"formation": 3, "rank": 0, "size": 2, "settled": 2})
    assert (s.settled, s._ledger_rows()) == (1, [[1, 0, 2]])
    s._recalled = -1
    elasticdl.State(n=1).sync()
    assert (s.settled, s.ledger) == (2, {})


def who_writes():
    """Check that rank 0 alone writes checkpoints: periodically, at the end, and on request."""
    path = os.path.join(os.environ["WHERE"], "written.pt")
    s = alone()
    saving.declared, saving.state = saving.Checkpoints(path, 3), elasticdl.State(n=1)
    wrote = []
    saving.declared.write = lambda session, state: wrote.append((session.world.rank, session.round))
    for rank in (0, 1):
        s.world = session.World(rank=rank, size=2)
        for s.round in range(1, 8):
            saving.after_round()
        saving.after_training()  # 7 is not written yet
        saving.checkpoint()
        s.round = 6
        saving.after_training()
    assert wrote == [(0, 3), (0, 6), (0, 7), (0, 7)], wrote
    del wrote[:]
    s.world, s.half = session.World(rank=0, size=2), True
    saving.checkpoint()
    assert not wrote
    s.half, s.round = False, 1
    saving.after_round()
    saving.after_round()
    assert wrote == [(0, 1)], wrote
    saving.declared.every = 0
    for s.round in range(1, 8):
        saving.after_round()
    saving.after_training()
    assert len(wrote) == 1


def written_whole():
    """Check that a checkpoint is on the disk before it replaces the last one.

    A failure leaves the last one, and no other file.
    """
    where = os.path.join(os.environ["WHERE"], "made", "for", "it")
    saved = saving.Checkpoints(os.path.join(where, "kept.pt"), 1)
    s = alone(4)
    s.ledger, s.cut = {(0, 1): 2}, leases.DataSet(20).cut()
    order, sync, replace = [], os.fsync, os.replace
    os.fsync = lambda fd: (order.append(("sync", os.fstat(fd).st_size > 0)), sync(fd))
    os.replace = lambda a, b: (order.append(("replace", os.path.getsize(a) > 0)), replace(a, b))
    saved.write(s, elasticdl.State(n=1))
    assert order == [("sync", True), ("replace", True)], order

    def full(fd):
        raise OSError(28, "No space left on device")

    os.fsync = full
    s.round = 5
    try:
        saved.write(s, elasticdl.State(n=2))
    except OSError as e:
        assert e.errno == 28
    else:
        raise AssertionError("not written, and nothing is reported")
    os.fsync, os.replace = sync, replace
    assert os.listdir(where) == ["kept.pt"]
    again = session.Session("gloo", None)
    saved.resume(again)
    assert (again.round, again.ledger, again.cut, again.loaded()) == (
        4,
        {(0, 1): 2},
        leases.DataSet(20).cut(),
        {"n": 1},
    )
    assert saving.Checkpoints(where, 1).path == os.path.join(where, "checkpoint.pt")
    assert saving.Checkpoints(where + "/new/", 1).path == os.path.join(where, "new/checkpoint.pt")


def newer_or_older():
    """Check that a file of another round than the process has arrived with is refused."""
    saved = saving.Checkpoints(os.path.join(os.environ["WHERE"], "other.pt"), 1)
    writer = alone(10)
    saved.write(writer, elasticdl.State(n=10))

    def doubted(why):
        raise AssertionError(why)

    for other in (9, 11):
        reader = session.Session("gloo", None)
        reader.doubt = doubted
        saved.resume(reader)
        reader.round = other
        try:
            reader.loaded()
        except AssertionError as e:
            assert "has round 10 now, and had %d" % other in str(e)
        else:
            raise AssertionError("it has the state of round 10")



def storage_fails():
    """Check that the training continues if the storage fails, and ends if the path is wrong.

    A checkpoint whose storage fails is reported and tried again.
    """
    path = os.path.join(os.environ["WHERE"], "kept.pt")
    s, told, now = alone(), [], [100.0]
    s.link = type(
        "Link", (), {"send": lambda self, op, **fields: told.append((op, fields["round"], fields.get("why")))}
    )()
    saving.declared, saving.state = saving.Checkpoints(path, 3), elasticdl.State(n=1)
    saving.time = type("Clock", (), {"monotonic": lambda self: now[0], "time": lambda self: 0.0})()
    failure, save = [None], torch.save

    def fails(what, file):
        """Fail as torch does: the error of the file is the context of another one."""
        if failure[0] is None:
            return save(what, file)
        try:
            raise failure[0]
        except OSError:
            raise RuntimeError("unexpected pos 64 vs 0")

    torch.save = fails
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE):
        del told[:]
        failure[0] = OSError(code, os.strerror(code))
        s.round = 3
        saving.after_round()
        why = str(failure[0])
        assert told == [("unsaved", 3, why)], told
        s.round = 4
        saving.after_round()  # not yet
        assert len(told) == 1
        now[0] += saving.RETRY
        saving.after_round()
        assert told[1:] == [("unsaved", 4, why)], told
        saving.checkpoint()
        s.round = 6
        # the round is one of those that are due, and has none
        saving.after_training()
        assert told[2:] == [("unsaved", 4, why), ("unsaved", 6, why)], told
        failure[0] = None
        now[0] += saving.RETRY
        s.round = 7
        saving.after_round()
        assert told[4:] == [("saved", 7, None)], told
        now[0] += saving.RETRY
        saving.after_round()
        assert len(told) == 5 and set(os.listdir(os.path.dirname(path))) - {"log"} == {"kept.pt"}
    for code in (errno.EACCES, errno.EROFS, errno.ENOENT):
        failure[0] = OSError(code, os.strerror(code))
        s.round = 9
        try:
            saving.after_round()
        except RuntimeError:
            continue
        raise AssertionError("a path that is wrong is tried for ever")


def differences():
    """Check that parts that differ on one of three ranks are sent to all, and others are not.

    Settled epochs are never forgotten.
    """
    s = alone(5)
    model = torch.nn.Linear(2, 2)
    state = elasticdl.State(model=model, n=3)
    s.live, s.source, s.ledger, s.cut = True, 0, {(1, 0): 4}, leases.DataSet(9).cut()
    s.group.size = 3
    sent = {}

    def gathered(group, row):
        other = list(row)
        if len(row) > 2:
            other[names.index("model") + 1] += 1  # the first tensor of the model
        return [list(row), list(row), other]

    def spread(group, source, body):
        sent["parts"] = states.pickle.loads(body)[4]
        return states._pickled((6, 1, {(1, 0): 8}, s.cut, {}))

    names = list(state.collect())
    states._gather, states._spread_bytes = gathered, spread
    states._spread = lambda group, source, tensors: sent.update(tensors=len(tensors))
    s.settled = 2  # of a state that is given up
    state._sync(s)
    (skeleton, places), = sent["parts"].values()
    assert list(sent["parts"]) == ["model"] and skeleton is None and len(places) == sent["tensors"] == 1
    assert (s.round, s.settled, s.ledger) == (6, 1, {(1, 0): 8})


def claimed():
    """Check that a checkpoint is claimed by its absolute path, and not read if that is refused."""
    os.chdir(os.environ["WHERE"])
    s, asked = session.Session("gloo", None), []
    s.claim("kept.pt")  # nobody to ask

    class Agent:
        refuses = False

        def ask(self, op, **fields):
            asked.append((op, fields))
            if self.refuses:
                raise elasticdl.Error("the agent refused")
            return {"claim": 3}

    s.link, saved = Agent(), saving.Checkpoints("kept.pt", 1)
    saved.resume(s)
    assert asked == [("checkpoint", {"path": os.path.join(os.getcwd(), "kept.pt")})], asked
    with open("kept.pt", "wb") as f:
        f.write(b"no checkpoint")
    Agent.refuses = True
    try:
        saved.resume(s)
    except elasticdl.Error as e:
        assert str(e) == "the agent refused"
        return
    raise AssertionError("not refused")


def taken_over():
    """Check that a checkpoint claimed by another job is not replaced, and that the job is named."""
    path = os.path.join(os.environ["WHERE"], "kept.pt")
    s, saved = alone(4), saving.Checkpoints(path, 1)

    class Agent:
        def ask(self, op, **fields):
            return {"claim": 9}

        def send(self, op, **fields):
            pass

    s.link = Agent()
    saved.resume(s)
    os.mkdir(path + ".owner")
    for name in ("owner-00000009", "owner-00000009.released", ".owner-00000010-7", "owner-10", "notes"):
        with open(os.path.join(path + ".owner", name), "w") as f:
            f.write('{"owner": {"name": "mine", "job": "u9"}}')
    saved.write(s, elasticdl.State(n=1))
    with open(os.path.join(path + ".owner", "owner-00000010"), "w") as f:
        f.write('{"owner": {"name": "other", "job": "u10"}}')
    try:
        saved.write(s, elasticdl.State(n=2))
    except elasticdl.Error as e:
        assert "taken over by job other (UID u10)" in str(e), e
    else:
        raise AssertionError("the checkpoint of another job was replaced")
    assert saved._read(open(path, "rb"))["state"] == {"n": 1}
    later = alone(3)
    later.world = later.world._replace(formation=7)
    saved._claim = 11
    assert saved.write(later, elasticdl.State(n=5)) == ""
    # a process of an earlier world takes long to write its state, which is an older one
    assert saved.write(s, elasticdl.State(n=2)) == "formation 7 has written a checkpoint since"
    assert saved._read(open(path, "rb"))["state"] == {"n": 5} and not glob.glob(path + ".*.tmp")
    # generations of a resumed job begin at 1
    saved._claim = 12
    assert saved.write(s, elasticdl.State(n=2)) == ""
    assert saved._read(open(path, "rb"))["state"] == {"n": 2}
    saved._claim = 0  # it was not claimed
    saved.write(s, elasticdl.State(n=3))


def gaps():
    """Check that credits are refused unless they begin where the ledger ends."""
    credit = rounds.Credit
    for first, last, wrong in ((4, 6, ""), (3, 6, "follow on 4"), (5, 6, "follow on 4"), (0, 4, "follow on 4")):
        had = {(1, 0): 4}
        assert wrong in rounds.enter(had, [credit(1, 0, first, last)], 1) and had[1, 0] == (4 if wrong else last)
    assert "settled" in rounds.enter({}, [credit(0, 0, 0, 1)], 1)


globals()[sys.argv[1]]()
