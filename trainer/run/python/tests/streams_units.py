"""The cases of test_units.py about shards of unknown length, and about the order of records.

Each runs in a world of one.
"""

import os
import pathlib
import sys

import torch

import elasticdl
from elasticdl import feeding, leases, rounds, saving, session, streams
from elasticdl.rounds import END, Credit
from elasticdl.streams import Reader, Request, StreamFeed


def refusal(call):
    try:
        call()
    except (elasticdl.Error, ValueError) as e:
        return str(e)
    raise AssertionError("it is accepted")


def alone():
    session._session = s = session.Session("gloo", None)
    s.form()
    s.synced = True
    return s


def ends():
    """Check that the end of a shard is entered once, and that nothing follows it."""
    ledger = {}
    assert rounds.enter(ledger, [Credit(0, 1, 0, 5), Credit(0, 1, 5, END + 5), Credit(0, 2, 0, END)], 0) == ""
    assert ledger == {(0, 1): END + 5, (0, 2): END} and rounds.count(END + 5) == rounds.count(5) == 5
    assert "the end of shard 1 in epoch 0, after 5" in rounds.enter(ledger, [Credit(0, 1, END + 5, END + 6)], 0)
    cut = leases.DataSet(2, stream=True).cut()
    assert leases.settle(cut, {(0, 0): 5, (0, 1): END + 5}, 0) == 0
    assert leases.settle(cut, {(0, 0): END, (0, 1): END + 5, (1, 0): END + 1, (1, 1): 3}, 0) == 1


def cuts():
    """Check that an open epoch fits the same shards only, in any order of the names' kinds."""
    one, names = leases.DataSet(3, stream=True, digest=7), {(0, 0): 5}
    assert one.cut() == dict(size=3, records_per_task=1, shuffle=True, seed=0, stream=True, digest=7)
    assert leases.misfit(one.cut(), leases.DataSet(3, stream=True, digest=7), names, 0) == ""
    assert "digest=7 (the script declares 8)" in leases.misfit(
        one.cut(), leases.DataSet(3, stream=True, digest=8), names, 0
    )
    assert "stream=True (the script declares None)" in leases.misfit(one.cut(), leases.DataSet(3), names, 0)
    assert "stream=None (the script declares True)" in leases.misfit(leases.DataSet(3).cut(), one, names, 0)
    # complete epochs fit other shards
    assert leases.misfit(one.cut(), leases.DataSet(3, 2, stream=True, digest=8), {}, 1) == ""
    plain = ["a", "b"]
    assert feeding.digest(plain) == feeding.digest(tuple(plain)) != feeding.digest(["b", "a"])
    assert feeding.digest([pathlib.Path("a")]) == feeding.digest(["a"]) != feeding.digest([b"a"])
    assert feeding.digest([("a", 1)]) not in (0, feeding.digest([("a", 2)]))
    assert feeding.digest([object()]) == feeding.digest([("a", object())]) == 0
    assert 0 < feeding.digest(range(10**4)) < 1 << 48


def reader():
    """Check the positions from which a shard is read, and how often it is opened."""
    opened = []

    def lines(shard):
        opened.append(shard)
        return iter(range(10 * shard, 10 * shard + shard))

    r = Reader(range(9), lines)
    assert r.read(Request(1, 0, 5, 0, 0, 3)) == ([50, 51, 52], False)
    assert r.read(Request(1, 0, 5, 3, 0, 2)) == ([53, 54], False) and opened == [5]
    assert r.read(Request(1, 0, 5, 5, 0, 2)) == ([], True)
    assert r.read(Request(1, 0, 5, 7, 0, 2)) == ([], True) and opened == [5]  # asked for ahead
    assert r.read(Request(1, 0, 5, 1, 1, 9)) == ([51, 52, 53, 54], True) and opened == [5, 5]
    assert r.read(Request(1, 1, 5, 0, 0, 1)) == ([50], False) and opened == [5] * 3  # another epoch
    assert r.read(Request(2, 1, 6, 4, 4, 1)) == ([64], False) and opened == [5] * 3 + [6]
    said = refusal(lambda: r.read(Request(3, 1, 2, 3, 3, 1)))
    assert "shard 2 (2) has 2 records now, and 3 of it are in the model" in said, said
    # also if its end was read since
    assert r.read(Request(3, 1, 2, 2, 2, 1)) == ([], True)
    refusal(lambda: r.read(Request(3, 1, 2, 3, 3, 1)))

    def seek(shard, start, epoch=0):
        opened.append((shard, start, epoch))
        return iter(range(start, 4))

    r = Reader(["a"], seek)
    assert r.read(Request(1, 2, 0, 3, 3, 9)) == ([3], True) and opened[-1] == ("a", 3, 2)
    assert Reader([[1, 2]], iter).read(Request(1, 0, 0, 0, 0, 9)) == ([1, 2], True)


def orders():
    """Check that records are taken in the order of the script, task by task."""
    s = alone()
    seen = []
    buckets = lambda epoch: [3, 3, 1, 0] if epoch == 0 else [0, 1, 2, 2]  # noqa: E731
    for batch in elasticdl.records(range(5), 2, epochs=2, shuffle=False, records_per_task=2, order=buckets):
        seen += batch.tolist()
        s.commit()
    assert seen == [3, 3, 1, 0, 0, 1, 2, 2], seen
    assert s.cut["digest"] == feeding.digest([3, 3, 1, 0]) and s.cut["size"] == 4
    s = alone()
    uneven = elasticdl.records(range(5), 2, epochs=2, order=lambda epoch: [0, 1] if epoch == 0 else [0])
    next(uneven)
    s.commit()
    assert "order(1) has 1 records, and order(0) has 2" in refusal(lambda: next(uneven))
    alone()
    assert "index 5, and there are 5" in refusal(
        lambda: next(elasticdl.records(range(5), 2, order=lambda epoch: [5]))
    )


def again():
    """Check which batches are returned again in a new world, without reading them again."""
    for workers in (0, 2):
        s, opened = alone(), []

        def numbers(shard):
            opened.append(shard)
            return iter(range(10 * shard, 10 * shard + 7))

        s.declare(leases.DataSet(3, shuffle=False, stream=True))
        feed = StreamFeed(s, Reader(range(3), numbers), 4, workers, lambda records: records)
        s.book.rewind(s.ledger)
        got = [feed.next() for _ in range(4)]
        assert sorted(sum((g[0] for g in got), [])) == sorted(set(sum((g[0] for g in got), [])))
        # the first is in the model
        assert rounds.enter(s.ledger, got[0][2], 0) == ""
        s.book.rewind(s.ledger)
        feed.rewind()
        before = list(opened)
        assert [feed.next() for _ in range(3)] == got[1:] and opened == before
        # the lease of the second is void: what follows it in its shards is read again
        s.book.rewind(s.ledger)
        dropped, kept = {got[1][2][0].number}, []
        s.book.held = [h for h in s.book.held if h.number not in dropped]
        feed.rewind()
        for g in got[1:]:
            numbers = {c.number for c in g[2]}
            if numbers & dropped:
                dropped |= numbers
            else:
                kept.append(g)
        assert list(feed._again) == kept, (feed._again, got)
        rest = sum((g[0] for g in iter(feed.next, None) if g[0]), [])
        left = {10 * h.number + i for h in s.book.held for i in range(rounds.count(s.ledger.get((0, h.number), 0)), 7)}
        assert set(rest) >= left and len(rest) == len(set(rest)), (rest, left)
        feed.close()


def weightless():
    """Check that ends without records are entered without a round, and that nothing is skipped."""
    s = alone()
    seen = []
    for batch in elasticdl.stream([4, 0, 0, 4, 0], range, 4, epochs=3, shuffle=False):
        seen.append(batch.tolist())
        s.commit()
    assert seen == [[0, 1, 2, 3]] * 6 and s.round == 6, (seen, s.round)
    assert [s.ledger[2, n] for n in range(5)] == [END + 4, END, END, END + 4, END]
    alone()
    assert list(elasticdl.stream(3, lambda shard: [], 4, epochs=2)) == []
    alone()
    assert "batch_size=0" in refusal(lambda: next(elasticdl.stream(3, range, 0)))
    s = alone()
    next(elasticdl.stream([3], range, 2))
    s.commit()
    assert "use elasticdl.stream() alone" in refusal(elasticdl.lease)


def lengths():
    """Check that a checkpoint has the number of records and the lengths of shards whose epoch is complete."""
    path = os.path.join(os.environ["WHERE"], "saved.pt")
    for more in (False, True):
        session._session, saving.declared, feeding._kept = None, None, None
        elasticdl.checkpoint(path, every=1)
        elasticdl.init()
        s, state = session.current(), elasticdl.State(count=0)
        settled = s.settled, s.book.counted, s.book.lengths
        assert not more or settled == (1, 5, {0: 2, 1: 3, 2: 0}), settled
        assert not more or all(epoch == 1 for epoch, _ in s.ledger) and s.ledger, s.ledger

        @elasticdl.run
        def train(state):
            for batch in elasticdl.stream([2, 3, 0], range, 2, epochs=2, shuffle=False):
                state.count += len(batch)
                elasticdl.step()
                if state.count == 8 and not more:
                    return

        train(state)
        assert state.count == (10 if more else 8), state.count
    # a lease of a complete epoch has all of its records
    assert s.book._credited({"epoch": 0, "number": 1, "start": 1, "end": 2}, {}) == END + 3


def ends_missing():
    """Check that a rank which has not met the end of a shard counts its records, too."""
    s = alone()
    s.cut = leases.DataSet(3, stream=True).cut()
    s.ledger = {(0, 0): END + 5, (0, 1): 7, (1, 0): 2}
    s.settle(1)
    assert s.records() == {"ledger": [[1, 0, 2]], "settled": 1, "counted": 12} and s.book.lengths == {0: 5, 1: 7}
    s.cut, s.ledger = leases.DataSet(30).cut(), {(1, 0): 10}
    s.settle(2)
    assert s.records() == {"ledger": [], "settled": 2, "counted": 12}


def shuffled():
    """Check that the shards of each epoch have an order of its own, which seed selects."""
    seen = {}
    for seed in (1, 1, 2):
        s, order = alone(), []
        for batch in elasticdl.stream(20, lambda shard: [shard], 1, epochs=2, seed=seed):
            order += batch.tolist()
            s.commit()
        assert sorted(order[:20]) == sorted(order[20:]) == list(range(20)) and order[:20] != order[20:]
        assert seen.setdefault(seed, order) == order
    assert seen[1] != seen[2]


if __name__ == "__main__":
    torch.set_num_threads(1)
    assert os.environ.get("ELASTICDL_SOCKET") is None and streams
    globals()[sys.argv[1]]()
