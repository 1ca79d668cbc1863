"""The cases of test_units.py about checkpoints on this machine.

Each runs in a world of one.
"""

import builtins
import errno
import glob
import json
import os
import random
import shutil
import sys
import threading

import torch

import elasticdl
from elasticdl import commits, leases, places, saving, session, staging


def alone(round=0):
    """Return the session of a world of one."""
    session._session = s = session.Session("gloo", None)
    s.form()
    s.round = round
    return s


def files(place):
    """Return the files of the commits in a directory, by the numbers of the commits' rounds."""
    found = {}
    for name in sorted(os.listdir(place)):
        if name.startswith("commit-"):
            found.setdefault(int(name.split("-")[3]), []).extend(sorted(os.listdir(os.path.join(place, name))))
    return found


WHOLE = ["commit.json", "state.pt"]


def resumed(path):
    """Return a new session that has resumed a checkpoint."""
    again = session.Session("gloo", None)
    saving.Checkpoints(path, 1).resume(again)
    return again


def who_writes():
    """Check that rank 0 alone writes checkpoints: periodically, at the end, and on request."""
    path = os.path.join(os.environ["WHERE"], "written")
    s = alone()
    saving.declared, saving.state = saving.Checkpoints(path, 3), elasticdl.State(n=1)
    wrote = []

    def put(task, of):
        wrote.append((of.world.rank, task.commit.round))
        saving.declared._round = task.commit.round

    saving.declared._put = put
    for rank in (0, 1):
        s.world = session.World(rank=rank, size=2)
        for s.round in range(1, 8):
            saving.after_round()
            saving.declared.settle()
            if rank == 0:
                saving.declared._staging.wait()
        saving.after_training()  # 7 is not written yet
        saving.checkpoint()
        saving.after_training()
        saving.declared.settle()
    assert wrote == [(0, 3), (0, 6), (0, 7), (0, 7)], wrote
    del wrote[:]
    s.world, s.half = session.World(rank=0, size=2), True
    saving.checkpoint()
    assert not wrote
    s.half, s.round = False, 1
    saving.after_round()
    saving.after_round()
    saving.declared.settle()
    assert wrote == [(0, 1)], wrote
    saving.declared.every = 0
    for s.round in range(1, 8):
        saving.after_round()
    saving.after_training()
    assert len(wrote) == 1


def one_at_a_time():
    """Check that training continues while a checkpoint is written, and that none is written twice.

    A checkpoint that is due meanwhile is made later; a requested one waits. The copy is written.
    """
    path = os.path.join(os.environ["WHERE"], "kept")
    s, model = alone(), torch.nn.Linear(3, 3)
    state = elasticdl.State(model=model, n=[0], tied=model.weight)
    saving.declared, saving.state = saving.Checkpoints(path, 2), state
    go, writes, place = threading.Event(), [], saving.declared.place
    write = place.write

    def slow(name, save):
        writes.append(name[-8:])
        assert go.wait(60)
        write(name, save)

    place.write = slow
    for s.round in range(1, 6):
        with torch.no_grad():
            model.weight.fill_(s.round)
        state.n[0] = s.round
        saving.after_round()
        saving.declared._staging.wait()
    assert len(writes) == 1 and not os.path.exists(path), writes  # 4 was due, and is not made
    staged = saving.declared._staging
    go.set()
    saving.declared.settle()
    assert files(path) == {2: WHOLE}
    staged.ready = lambda: False  # memory is allocated still
    s.round = 6
    saving.after_round()
    assert files(path) == {2: WHOLE} and saving.declared._thread is None
    del staged.ready
    got = resumed(path).loaded()
    assert got["n"] == [2] and (got["model"]["weight"] == 2).all() and (got["tied"] == 2).all(), got
    s.round = 7
    saving.after_round()  # it is late, not due
    saving.declared.settle()
    assert files(path) == {7: WHOLE}
    s.round = 9
    saving.after_round()
    assert not saving.declared.busy()
    go.clear()
    saving.declared.attempt(s, state)
    assert saving.declared.busy()
    threading.Timer(0.1, go.set).start()
    s.round = 10
    saving.checkpoint()  # returns when 9 and 10 are written
    assert not saving.declared.busy() and files(path) == {10: WHOLE}, files(path)
    assert saving.before_end() == ""
    assert saving.declared._writes == 4  # the last one is of this round
    buffers = [t.data_ptr() for t in saving.declared._staging._buffers]
    saving.declared.attempt(s, state)
    assert buffers == [t.data_ptr() for t in saving.declared._staging._buffers] and len(buffers) == 2
    saving.declared.settle()
    s.world = session.World(rank=1, size=2)
    saving._asked = True  # of a world in which this was rank 0
    writes.clear()
    saving.after_round()
    assert saving.declared._staging is None and not saving._asked and writes == []  # another rank writes now


def no_room():
    """Check that without memory for a copy the state itself is written, before training continues."""
    path = os.path.join(os.environ["WHERE"], "kept")
    s = alone(3)
    saving.declared, saving.state = saving.Checkpoints(path, 3), elasticdl.State(w=torch.ones(1000))
    staging.headroom = lambda: 4000
    saving.after_round()
    assert not saving.declared.busy() and files(path) == {3: WHOLE}
    assert not saving.declared._staging._buffers
    staging.headroom = lambda: 5000
    s.round = 6
    saving.declared._staging = None
    assert not saving.declared.busy()
    saving.after_round()
    saving.declared.settle()
    assert len(saving.declared._staging._buffers) == 1 and files(path) == {6: WHOLE}
    assert staging.available("MemTotal: 9 kB\nMemAvailable:     7 kB\n") == 7168 and staging.available("x") is None
    assert staging.left("max", "5", "") is None and staging.left("100", "80", "inactive_file 30\n") == 50
    assert staging.left("100", "180", "inactive_file x\n\n") == 0 and staging.left("", "", "") is None


def copies_of_tensors():
    """Check that a copy has what the state had, whatever its tensors are like."""
    base = torch.arange(24.0)
    values = {
        "sliced": base.reshape(4, 6)[:, ::2],
        "last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
        "sparse": torch.eye(3).to_sparse(),
        "empty": torch.empty(0, 4),
        "scalar": torch.tensor(7, dtype=torch.int64),
        "half": torch.ones(5, dtype=torch.bfloat16),
        "large": torch.arange(5 * staging.PIECE // 8 + 3),  # copied by threads
        "more": [{"flags": torch.tensor([True, False])}, ("text", None)],
    }
    held = staging.Staging()
    for _ in range(2):
        copied = held.copy(values)
        want = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in values.items()}
        values["half"].add_(1)
        base.add_(100)
        got = copied.values()
        for name in ("sliced", "last", "empty", "scalar", "half", "large"):
            assert torch.equal(got[name], want[name]), name
        assert torch.equal(got["conjugate"].resolve_conj(), want["conjugate"].resolve_conj())
        assert torch.equal(got["sparse"].to_dense(), torch.eye(3))
        assert got["last"].is_contiguous(memory_format=torch.channels_last)
        assert got["more"][0]["flags"].tolist() == [True, False] and got["more"][1] == ("text", None)


def written_whole():
    """Check that a commit is on the disk before its record is, and this before the last is removed.

    A failure leaves the last one, and no other file.
    """
    where = os.path.join(os.environ["WHERE"], "made", "for", "it")
    saved = saving.Checkpoints(where, 1)
    s = alone(4)
    s.ledger, s.cut = {(0, 1): 2}, leases.DataSet(20).cut()
    order, sync, replace, unlink = [], os.fsync, os.replace, os.unlink
    os.fsync = lambda fd: (order.append("sync"), sync(fd))
    os.replace = lambda a, b: (order.append(os.path.basename(b) + " %d" % (os.path.getsize(a) > 0)), replace(a, b))
    os.unlink = lambda a: (order.append("remove " + os.path.basename(a)), unlink(a))
    saved.write(s, elasticdl.State(n=1))
    both = ["sync", "state.pt 1", "sync", "sync", "commit.json 1", "sync"]
    assert order == both, order
    s.round, order[:] = 5, []
    saved.write(s, elasticdl.State(n=1))
    assert order == both + ["remove commit.json", "remove state.pt"], order
    os.replace, os.unlink = replace, unlink

    for at in (1, 2, 3, 4):  # of the synchronizations

        def full(fd, count=[0]):
            count[0] += 1
            if count[0] == at:
                raise OSError(28, "No space left on device")

        os.fsync = full
        s.round = 6
        try:
            saved.write(s, elasticdl.State(n=2))
        except OSError as e:
            assert e.errno == 28
        else:
            raise AssertionError("not written, and nothing is reported")
        os.fsync = sync
        assert files(where) == {5: WHOLE}, (at, files(where))
    again = resumed(where)
    assert (again.round, again.ledger, again.cut, again.loaded()) == (
        5,
        {(0, 1): 2},
        leases.DataSet(20).cut(),
        {"n": 1},
    )


def killed_anywhere():
    """Check that at each moment of a write the checkpoint is complete, as a reader sees it."""
    where = os.path.join(os.environ["WHERE"], "kept")
    saved, s = saving.Checkpoints(where, 1), alone(1)
    saved.write(s, elasticdl.State(n=1))
    seen = []

    def look():
        again = resumed(where)
        assert again.loaded() == {"n": again.round}, again.round
        seen.append(again.round)

    patched = {name: getattr(os, name) for name in ("replace", "unlink", "rmdir", "makedirs")}
    patched["open"] = builtins.open

    def watched(name):
        def call(*args, **kwargs):
            if not looking:
                looking.append(1)
                look()
                looking.pop()
            return patched[name](*args, **kwargs)

        return call

    looking = []
    for name in patched:
        setattr(builtins if name == "open" else os, name, watched(name))
    s.round = 2
    saved.write(s, elasticdl.State(n=2))
    look()
    assert seen[0] == 1 and seen[-1] == 2 and seen == sorted(seen) and len(seen) > 6, seen


def an_old_file():
    """Check that the single file of an older version is resumed, and left unchanged."""
    where = os.environ["WHERE"]
    for declared, file, place in (("old.pt", "old.pt", "old.pt.commits"), ("dir", "dir/checkpoint.pt", "dir")):
        path, file, place = (os.path.join(where, x) for x in (declared, file, place))
        os.makedirs(os.path.dirname(file), exist_ok=True)
        torch.save({"kind": "elasticdl-checkpoint-1", "time": 0.0, "round": 7, "settled": 1, "ledger": [[1, 0, 4]],
                    "cut": leases.DataSet(20, 2).cut(), "state": {"n": 7}}, file)
        again = resumed(path)
        assert (again.round, again.settled, again.ledger, again.loaded()) == (7, 1, {(1, 0): 4}, {"n": 7})
        s = alone(8)
        s.sharded = s.parted = True
        try:
            saving.Checkpoints(path, 1).look(s)
        except elasticdl.Error as e:
            assert "has whole state" in str(e) and s.round == 8, e
        else:
            raise AssertionError("sharded state was read from it")
        s.sharded = s.parted = False
        saving.Checkpoints(path, 1).write(s, elasticdl.State(n=8))
        assert resumed(path).loaded() == {"n": 8} and os.path.isfile(file) and files(place) == {8: WHOLE}
    with open(os.path.join(where, "foreign.pt"), "wb") as f:
        f.write(b"no checkpoint")
    try:
        resumed(os.path.join(where, "foreign.pt"))
    except elasticdl.Error as e:
        assert "cannot be read" in str(e)
        return
    raise AssertionError("it was read")


def newer_or_older():
    """Check that a process whose commit was removed by a newer one takes no other state."""
    where = os.path.join(os.environ["WHERE"], "other")
    saved = saving.Checkpoints(where, 1)
    writer = alone(10)
    saved.write(writer, elasticdl.State(n=10))

    def doubted(why):
        raise AssertionError(why)

    reader = session.Session("gloo", None)
    reader.doubt = doubted
    saving.Checkpoints(where, 1).resume(reader)
    saved.place.read = None
    with open(glob.glob(where + "/*/state.pt")[0], "r+b") as f:  # as if the open file were removed
        f.truncate(0)
    try:
        reader.loaded()
    except elasticdl.Error as e:
        assert "commit before it" in str(e)  # nobody has written a newer one: it is damaged
    else:
        raise AssertionError("it has a state")
    saving.Checkpoints(where, 1).resume(reader)
    writer.round = 11
    saving.Checkpoints(where, 1).write(writer, elasticdl.State(n=11))
    saved = saving.Checkpoints(where, 1)
    saved.place.write("commit-00000000-00000001-00000012-1/commit.json", lambda f: f.write(b"{}"))
    try:
        reader.loaded()
    except AssertionError as e:
        assert "there is a newer one" in str(e)
    else:
        raise AssertionError("it has a state")


def order_of_commits():
    """Check names and order of commits: claims count first, then worlds, rounds and writes."""
    numbers = ((0, 1, 900, 1), (1, 3, 400, 1), (1, 4, 2, 9), (1, 4, 3, 1), (1, 4, 3, 2), (2, 1, 1, 1))
    in_order = [commits.Commit(*c) for c in numbers]
    rng = random.Random(1)
    for _ in range(50):
        mixed = rng.sample(in_order, len(in_order))
        complete = set(rng.sample(in_order, 3))
        begun = commits.of(
            [c.name for c in mixed] + ["owner-00000001", "commit-1-1-1-1", "notes"],
            lambda name: ["state.pt"] + ["commit.json"] * (commits.parse(name) in complete),
        )
        assert set(begun) == set(in_order) and commits.newest(begun) == max(complete)
        by = rng.choice(in_order)
        removed = commits.outdated(begun, by)
        assert {x.split("/")[0] for x in removed} == {c.name for c in in_order if c < by}
        records = [x.endswith("commit.json") for x in removed]
        assert records == sorted(records, reverse=True)  # first of all
    assert [c.name for c in in_order] == sorted(c.name for c in in_order)
    assert commits.newest({}) is None and commits.owner([]) is None
    assert commits.owner(["owner-00000002", "owner-00000010", "owner-00000011.released", "owner-x"]) == "owner-00000010"


def disk_full():
    """Check that a full disk, as torch reports it, is a failure of the storage."""
    s, told = alone(3), []
    s.link = type("Link", (), {"send": lambda self, op, **fields: told.append((op, fields.get("why")))})()
    saving.declared = saving.Checkpoints(os.path.join(os.environ["WHERE"], "kept"), 3)
    saving.state = elasticdl.State(values=torch.zeros(1 << 16))
    places.open = lambda path, mode: open("/dev/full", mode)
    saving.checkpoint()
    (op, why), = told
    assert op == "unsaved" and os.strerror(errno.ENOSPC) in why, told
    del places.open
    saving.checkpoint()
    assert told[1:] == [("saved", None)], told


def storage_fails():
    """Check that the training continues if the storage fails, and ends if the path is wrong.

    A checkpoint whose storage fails is reported and tried again.
    """
    path = os.path.join(os.environ["WHERE"], "kept")
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

    def round_ends():
        saving.after_round()
        saving.declared.settle()

    torch.save = fails
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE):
        del told[:]
        shutil.rmtree(path, ignore_errors=True)
        failure[0] = OSError(code, os.strerror(code))
        s.round = 3
        round_ends()
        why = str(failure[0])
        assert told == [("unsaved", 3, why)], told
        s.round = 4
        round_ends()  # not yet
        assert len(told) == 1
        now[0] += saving.RETRY
        round_ends()
        assert told[1:] == [("unsaved", 4, why)], told
        saving.checkpoint()
        saving.declared.settle()
        s.round = 6
        # the round is one of those that are due, and has none
        saving.after_training()
        assert told[2:] == [("unsaved", 4, why), ("unsaved", 6, why)], told
        failure[0] = None
        now[0] += saving.RETRY
        s.round = 7
        round_ends()
        assert told[4:] == [("saved", 7, None)], told
        now[0] += saving.RETRY
        round_ends()
        assert len(told) == 5 and files(path) == {7: WHOLE}
    for code in (errno.EACCES, errno.EROFS, errno.ENOENT):
        failure[0] = OSError(code, os.strerror(code))
        s.round = 9
        try:
            round_ends()
        except RuntimeError:
            continue
        raise AssertionError("a path that is wrong is tried for ever")


def claimed():
    """Check that a checkpoint is claimed by its absolute path, and not read if that is refused."""
    os.chdir(os.environ["WHERE"])
    s, asked = session.Session("gloo", None), []
    saving.claim(s, "kept")  # nobody to ask

    class Agent:
        refuses = False

        def ask(self, op, **fields):
            asked.append((op, fields))
            if self.refuses:
                raise elasticdl.Error("the agent refused")
            return {"claim": 3}

    s.link, saved = Agent(), saving.Checkpoints("kept", 1)
    saved.resume(s)
    assert asked == [("checkpoint", {"path": os.path.join(os.getcwd(), "kept")})], asked
    os.makedirs("kept/commit-00000003-00000001-00000001-1")
    for name in ("commit.json", "state.pt"):
        with open("kept/commit-00000003-00000001-00000001-1/" + name, "wb") as f:
            f.write(b"no checkpoint")
    Agent.refuses = True
    try:
        saved.resume(s)
    except elasticdl.Error as e:
        assert str(e) == "the agent refused"
    else:
        raise AssertionError("not refused")
    Agent.refuses = False
    try:
        saved.resume(s)
    except elasticdl.Error as e:
        assert "cannot be read: commit-00000003-00000001-00000001-1/commit.json" in str(e), e
    else:
        raise AssertionError("read")
    record = {"kind": "elasticdl-checkpoint-2", "round": 1, "settled": 0, "ledger": [], "cut": None}
    with open("kept/commit-00000003-00000001-00000001-1/commit.json", "w") as f:
        json.dump(record, f)
    os.unlink("kept/commit-00000003-00000001-00000001-1/state.pt")
    try:
        saved.resume(s)
    except elasticdl.Error as e:
        assert "files of its newest commit are missing" in str(e), e
    else:
        raise AssertionError("it starts over")
    os.rename("kept/commit-00000003-00000001-00000001-1", "kept/commit-00000004-00000001-00000001-1")
    try:
        saved.resume(s)  # the files of the claims were lost
    except elasticdl.Error as e:
        assert "commits of claim 4, and files owner-… up to claim 3" in str(e), e
        return
    raise AssertionError("it would never write")


def taken_over():
    """Check that a checkpoint claimed by another job is not replaced, and that the job is named."""
    path = os.path.join(os.environ["WHERE"], "kept")
    s, saved = alone(4), saving.Checkpoints(path, 1)

    class Agent:
        def ask(self, op, **fields):
            return {"claim": 9}

        def send(self, op, **fields):
            pass

    s.link = Agent()
    os.mkdir(path)
    saved.resume(s)
    for name in ("owner-00000009", "owner-00000009.released", ".owner-00000010-7", "owner-10", "notes"):
        with open(os.path.join(path, name), "w") as f:
            f.write('{"owner": {"name": "mine", "job": "u9"}}')
    saved.write(s, elasticdl.State(n=1))
    with open(os.path.join(path, "owner-00000010"), "w") as f:
        f.write('{"owner": {"name": "other", "job": "u10"}}')
    try:
        saved.write(s, elasticdl.State(n=2))
    except elasticdl.Error as e:
        assert "taken over by job other (UID u10)" in str(e), e
    else:
        raise AssertionError("the checkpoint of another job was replaced")
    assert resumed(path).loaded() == {"n": 1}
    later = alone(3)
    later.link, later.world = s.link, later.world._replace(formation=7)
    saved._claim = 11
    assert saved.write(later, elasticdl.State(n=5)) == ""
    # a process of an earlier world takes long to write its state, which is an older one
    assert saved.write(s, elasticdl.State(n=2)) == "formation 7 has written a checkpoint since"
    assert resumed(path).loaded() == {"n": 5} and files(path) == {3: WHOLE}
    # it has written the state, and a later world removes it
    write = saved.place.write

    def late(name, save):
        write(name, save)
        if name.endswith("state.pt"):
            os.unlink(os.path.join(path, name))
            os.rmdir(os.path.dirname(os.path.join(path, name)))

    saved.place.write = late
    assert saved.write(s, elasticdl.State(n=2)) == "formation 7 has written a checkpoint since"
    saved.place.write = write
    assert resumed(path).loaded() == {"n": 5} and files(path) == {3: WHOLE}
    # generations of a resumed job begin at 1
    saved._claim = 12
    assert saved.write(s, elasticdl.State(n=2)) == ""
    assert resumed(path).loaded() == {"n": 2}
    # without an agent it is continued by what comes after that
    by_hand, place = alone(5), saving.Checkpoints(path, 1)
    place.resume(by_hand)
    assert place.write(by_hand, elasticdl.State(n=3)) == "" and resumed(path).loaded() == {"n": 3}


if __name__ == "__main__":
    globals()[sys.argv[1]]()
