"""The cases of test_units.py about the laws of leases, rounds, state and checkpoints.

Each runs in a world of one.
"""

import copy
import datetime
import os
import pickle
import sys
import threading
import warnings
from types import SimpleNamespace

import torch

import elasticdl
from elasticdl import group, leases, rounds, session, states, updates


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
    assert s.ledger == {(2, 5): 3} and s.records()["ledger"] == [[2, 5, 3]]


def older_than_its_world():
    """Check that a process with an older state reports that state until it has the world's."""
    s = alone()
    s.link, s._recalled = SimpleNamespace(inode=0), 3  # that world is over before it is made
    s.settled, s.ledger = 1, {(1, 0): 2}
    assert not s._enter({"formation": 3, "rank": 0, "size": 2, "settled": 2})
    assert (s.settled, s.records()["ledger"]) == (1, [[1, 0, 2]])
    s._recalled = -1
    elasticdl.State(n=1).sync()
    assert (s.settled, s.ledger) == (2, {})


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
        sent["parts"] = states.pickle.loads(body)[2]
        return states._pickled((6, (1, 70, {(1, 0): 8}, {2: 9}, s.cut), sent["parts"]))

    names = list(state.collect())
    states._gather, states._spread_bytes = gathered, spread
    states._spread = lambda group, source, tensors: sent.update(tensors=len(tensors))
    s.settled = 2  # of a state that is given up
    state._sync(s)
    (skeleton, places), = sent["parts"].values()
    assert list(sent["parts"]) == ["model"] and skeleton is None and len(places) == sent["tensors"] == 1
    assert (s.round, *s.known[:4]) == (6, 1, 70, {(1, 0): 8}, {2: 9})


def newcomers():
    """Check that a newcomer gets the state from one rank that has it, and the others take no part.

    A part that differs on one of those goes to all. If more ranks lack the state than have it, the
    source sends it to all.
    """
    sent = threading.local()
    move = states._move

    def counted(chunk, size, sends, to):
        sent.bytes += size if chunk and chunk[0].dtype == torch.float32 else 0
        move(chunk, size, sends, to)

    states._move = counted

    def rank(r, store, size, live, rounds, source, found):
        gloo = torch.distributed.ProcessGroupGloo(store, r, size, datetime.timedelta(seconds=60))
        g = group.Group(1, r, size)
        g.gloo = gloo
        model = torch.nn.Sequential(torch.nn.Linear(100, 100), torch.nn.Linear(100, 100, bias=False))
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        for p in model.parameters():
            torch.nn.init.constant_(p, 7 if live else 8)
        if live:
            for p in model.parameters():
                p.grad = torch.ones_like(p)
            optimizer.step()
            if r == 1:
                model[0].bias.data += 1  # after step()
        state = elasticdl.State(model=model, optimizer=optimizer, epoch=r)
        s = SimpleNamespace(sharded=False, replica=None, group=g, source=source, loaded=None, live=live, half=False,
                            round=rounds, known=("of", r))
        sent.bytes = 0
        state._sync(s)
        values = [t.clone() for t in [*model.state_dict().values(), *(
            x["momentum_buffer"] for x in optimizer.state_dict()["state"].values())]]
        found[r] = (sent.bytes, s.round, s.known, state.epoch, values)

    def play(lives, rounds, source):
        found, store = {}, torch.distributed.HashStore()
        threads = [threading.Thread(target=rank, args=(r, store, len(lives), live, rounds[r], source, found))
                   for r, live in enumerate(lives)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        for _, round, known, epoch, values in found.values():
            assert (round, known, epoch) == (rounds[source], ("of", source), source)
            assert all(torch.equal(a, b) for a, b in zip(values, found[source][4]))
        return [found[r][0] // 4 for r in range(len(lives))]

    bias, whole = 100, 2 * (2 * 100 * 100 + 100)  # with the momentum; in numbers
    both = whole + bias  # what differs is sent to all, after that
    assert play([True, True, True, False], [5, 5, 5, -1], 0) == [both, bias, bias, both]
    assert play([True, True, False, False], [5, 5, 0, 0], 1) == [both, both, both, both]
    assert play([True, True, True, True], [5, 5, 4, 5], 3) == [both, bias, both, bias]
    assert play([True, False, False], [5, 0, 0], 0) == [whole] * 3
    assert play([True, True, True], [5, 5, 5], 2) == [bias] * 3


def received_in_place():
    """Check which tensors a state is received into, and that a part of a state is never trained on."""
    def skeleton(pieces):
        return pieces.members["model"][0]

    model, narrow = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    narrow.weight.data = torch.ones(3, 2).t()
    same, other = (states._Pieces({"model": torch.nn.Linear(3, n).state_dict()}) for n in (2, 4))
    own = states._Pieces({"model": model.state_dict()})
    assert [t.data_ptr() for t in own.room("model", skeleton(same))] == [p.data_ptr() for p in model.parameters()]
    for pieces, name, of in ((own, "model", other), (own, "optimizer", same),
                             (states._Pieces({"model": narrow.state_dict()}), "model", same)):
        room = pieces.room(name, skeleton(of))
        assert not {t.data_ptr() for t in room} & {t.data_ptr() for t in pieces.all_tensors()}
        assert [t.shape for t in room] == [t.shape for t in of.all_tensors()]

    class Doubts(Exception):
        pass

    def doubt(why):
        raise Doubts(why)

    state, s = elasticdl.State(model=model), alone()
    s.doubt = doubt
    state.__dict__["_torn"] = True
    for source, live, loaded, doubts in ((-1, False, None, True), (0, False, None, False), (-1, True, None, False),
                                         (-1, False, state.collect, False)):
        s.source, s.live, s.loaded = source, live, loaded
        try:
            state._sync(s)
        except Doubts:
            assert doubts, (source, live, loaded)
        else:
            assert not doubts


def watched():
    """Check when the update of a round counts as applied, with schedulers, copies and two optimizers."""
    def optimizer():
        p = torch.nn.Parameter(torch.zeros(2))
        p.grad = torch.ones(2)
        return torch.optim.SGD([p], lr=1.0)

    def at(optimizer):
        return optimizer.param_groups[0]["params"][0][0].item()

    u, first, second = updates.Updates(), optimizer(), optimizer()
    before = torch.optim.lr_scheduler.StepLR(first, 1, gamma=0.5)
    for _ in range(2):
        u.watch([first, second, torch.nn.Linear(1, 1), 3])
    after = torch.optim.lr_scheduler.StepLR(second, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as of a scheduler that sees no step
        assert not u.applied()
        first.step()
        before.step()
        assert not u.applied()  # it is not known yet that one round may step one alone
        second.step(lambda: 7.0)
        after.step()
    assert u.applied() and at(first) == -1
    u.close()
    assert not u.applied()
    second.step()
    assert not u.applied()
    first.step()
    assert u.applied()
    u.reopen()  # further records
    assert not u.applied()
    second.step()
    u.close()  # only one steps in a round
    second.step()
    assert u.applied()
    u.reopen()
    u.close()  # a scaler has left a step out
    assert not u.applied()
    second.step()
    assert u.applied()
    third = optimizer()
    u.watch([third])
    other = copy.deepcopy(third)
    other.param_groups[0]["params"][0].grad = torch.ones(2)
    u.reopen()
    other.step()
    assert not u.applied() and (at(third), at(other)) == (0, -1)
    pickle.loads(pickle.dumps(third))


def interrupted():
    """Check that a round that is given up counts if its update is applied, and only then."""
    p = torch.nn.Parameter(torch.zeros(2))
    s, optimizer = alone(4), torch.optim.SGD([p], lr=1.0)
    s.updates.watch([optimizer])
    for steps, more, want in ((True, False, 5), (False, False, 5), (True, True, 5), (True, False, 6)):
        s.begin(8, (rounds.Credit(0, want, 0, 8),))
        s.weights()
        s.half = True
        if steps:
            optimizer.step()
        if more:  # records that are in no update
            s.gathered(s.begin(8, (rounds.Credit(0, 9, 0, 8),)))
        s.form()
        assert s.round == want, (steps, more, want)
        assert not s.over and not s.headers
        s.half = False
    s.begin(8)
    optimizer.step()
    s.form()  # which records it has is not known
    assert s.round == 6
    optimizer.step()
    s.form()  # it has none
    assert (s.round, s.over) == (7, False)
    model = torch.nn.Linear(1, 1)
    model(torch.ones(1, 1)).sum().backward()
    s.begin(8)
    s.weights()
    optimizer.step()
    elasticdl.allreduce_gradients(model)  # of a second optimizer, which has not stepped yet
    s.form()
    assert s.round == 7
    s.half = False
    assert sorted(s.ledger) == [(0, 5), (0, 6)]


def gaps():
    """Check that credits are refused unless they begin where the ledger ends."""
    credit = rounds.Credit
    for first, last, wrong in ((4, 6, ""), (3, 6, "follow on 4"), (5, 6, "follow on 4"), (0, 4, "follow on 4")):
        had = {(1, 0): 4}
        assert wrong in rounds.enter(had, [credit(1, 0, first, last)], 1) and had[1, 0] == (4 if wrong else last)
    assert "settled" in rounds.enter({}, [credit(0, 0, 0, 1)], 1)


globals()[sys.argv[1]]()
