"""Further cases of test_units.py, which runs each with the torch that is tested."""

import glob
import os
import shutil
import socket
import sys
import threading
import time
from datetime import timedelta

import torch

import elasticdl
from elasticdl import abort, leases, nccl, rounds, saving, session, states
from elasticdl import group as groups
from elasticdl.group import Group


def permutation():
    for size in (1, 2, 3, 17, 256, 1000):
        for seed in (0, 1, 99):
            assert sorted(leases.permute(i, size, seed) for i in range(size)) == list(range(size))
    assert [leases.permute(i, 10, 0) for i in range(10)] != [leases.permute(i, 10, 1) for i in range(10)]


def ledger():
    credit = rounds.Credit
    had = {(0, 1): 5}
    assert rounds.enter(had, [credit(0, 1, 8, 9), credit(0, 1, 5, 8), credit(0, 2, 0, 4)], 0) == ""
    assert had == {(0, 1): 9, (0, 2): 4}
    assert "follow on 4" in rounds.enter(had, [credit(0, 2, 3, 6)], 0)  # twice
    assert "follow on 4" in rounds.enter(had, [credit(0, 2, 5, 6)], 0)  # a gap
    assert "settled" in rounds.enter(had, [credit(0, 2, 4, 6)], 1)


def losses():
    assert rounds.reported(None) is None
    assert rounds.reported(1) == rounds.reported(torch.ones(1, requires_grad=True)) == 1.0
    # the agent reads JSON, and a float32
    for loss in ("nan", "inf", "-inf", "1e39", "-1e39"):
        assert rounds.reported(float(loss)) is None
    assert rounds.reported(-3e38) == -3e38


def ended():
    """Check that an abort ends collectives that wait for a silent peer, on both sides, at once.

    It does with connections of several network devices, too. Those of another group stay open.
    """
    for devices in ("lo", "lo,lo"):
        os.environ["GLOO_SOCKET_IFNAME"] = devices
        group, peer = gloo(1800)
        other, more = gloo(1800)
        works = [group.allreduce([torch.ones(4)]) for _ in range(2)]
        assert abort.of_gloo([None, group, group]) == [group]
        assert abort.abort(group) == "" and abort.abort(group) == ""
        works += [peer.allreduce([torch.ones(4)]) for _ in range(2)]
        for work in works:
            try:
                work.wait()
            except RuntimeError as e:
                assert any(word in str(e) for word in ("Connection", "closure", "Socket", "Broken pipe")), e
                continue
            raise AssertionError("the peer has taken no part")
        both = [g.allreduce([torch.ones(4)]) for g in (other, more)]
        assert all(work.wait() for work in both)


def scripts_groups():
    """Check that groups of the script are aborted with the world, also those that it makes later."""
    group = Group(1, 0, 2)
    group.gloo, world = gloo(1800)
    group.data, group.store = group.gloo, torch.distributed.HashStore()
    group.publish()
    c10d = torch.distributed.distributed_c10d
    table = c10d._world.pg_map if hasattr(c10d, "_world") else c10d._pg_map
    peers = [world]

    def made():
        own, peer = gloo(1800)
        peers.append(peer)
        table[own] = ("gloo", None)  # as new_group does
        return own

    works = [group.gloo.allreduce([torch.ones(4)]), made().allreduce([torch.ones(4)])]
    group.condemn(print)
    works.append(made().allreduce([torch.ones(4)]))
    for work in works:
        try:
            groups._plain_wait(work)
        except RuntimeError:
            continue
        raise AssertionError("the peer has taken no part")
    group.bury()
    next_one, peer = gloo(1800)
    table[next_one] = ("gloo", None)
    time.sleep(0.1)
    both = [g.allreduce([torch.ones(4)]) for g in (next_one, peer)]
    assert all(work.wait() for work in both)


def messages():
    """Check that a message may be late, that the world lives on, and that an abort ends its wait."""
    group = Group(1, 0, 2)
    group.gloo, peer = gloo(1800)
    group.data, group.store = group.gloo, torch.distributed.HashStore()
    group.publish()
    received = torch.zeros(4)

    def late():
        time.sleep(5 * groups.LOOK.total_seconds())
        groups._plain_wait(peer.send([torch.ones(4)], 0, 3))

    sender = threading.Thread(target=late)
    sender.start()
    assert torch.distributed.recv(received, src=1, tag=3) == 1 and received.sum() == 4
    sender.join()
    works = [pg.allreduce([received]) for pg in (group.gloo, peer)]
    assert all(work.wait() for work in works)
    # nobody receives it, and it does not fit into the buffers of the system
    large = torch.distributed.isend(torch.ones(1 << 24), dst=1, tag=4)
    never = torch.distributed.irecv(received, src=1, tag=5)
    threading.Timer(0.3, group.condemn, [print]).start()
    began = time.monotonic()
    for work in (never, large):
        try:
            work.wait()
        except RuntimeError:
            continue
        raise AssertionError("the peer has taken no part")
    assert time.monotonic() - began < 20


def long_messages():
    """Check that a message may take longer than the constructor of the world's group.

    In a group of the script its own timeout holds.
    """
    group = Group(1, 0, 2)
    group.gloo, peer = gloo(1)
    group.data = group.across = group.gloo
    group.store = torch.distributed.HashStore()
    group.publish()
    own, _ = gloo(1)
    received = torch.zeros(4)

    def late(tag):
        time.sleep(2)
        groups._plain_wait(peer.send([torch.ones(4)], 0, tag))

    def recv():
        torch.distributed.recv(received, src=1, tag=states.TAG)

    def hand():
        states._hand(group, 1, 0, [received], group.wait_message)

    for receive in recv, hand:
        sender = threading.Thread(target=late, args=[states.TAG])
        sender.start()
        receive()
        sender.join()
        assert received.sum() == 4
        received.zero_()
    try:
        own.recv([received], 1, 3).wait()
    except RuntimeError as e:
        assert "Timed out waiting 1000ms" in str(e), e
    else:
        raise AssertionError("nobody has sent that")


def stays_open():
    """Check that a process whose connections an abort does not close is not sure of its state."""
    group, doubts = Group(1, 0, 2), []
    group.gloo, peer = gloo(1800)
    receive = torch.distributed.ProcessGroupGloo.recv

    class Timeless:
        def wait(self, timeout):
            raise RuntimeError("Timed out waiting 1ms for recv operation to complete")

    torch.distributed.ProcessGroupGloo.recv = lambda *_: Timeless()
    abort._wait = lambda work, timeout: work.wait(timeout)
    group.condemn(doubts.append)
    end = time.time() + 5
    while not doubts and time.time() < end:
        time.sleep(0.01)
    torch.distributed.ProcessGroupGloo.recv = receive
    assert doubts == [
        "aborting a group of gloo failed: the connection to rank 1 is open:"
        " Timed out waiting 1ms for recv operation to complete"
    ], doubts
    group.bury()


def aborting():
    """Check that NCCL's group is aborted once, by another thread, before it is dropped.

    It is never destroyed or flushed.
    """

    class Backend:
        calls = []

        def abort(self):
            self.calls.append(("abort", threading.current_thread() is threading.main_thread()))

        def __getattr__(self, name):
            raise AssertionError("asked for " + name)

    group = Group(1, 0, 2)
    group.gloo, group.data, group.nccl = object(), Backend(), True
    group.condemn(print)
    group.condemn(print)
    end = time.time() + 5
    while not Backend.calls and time.time() < end:
        time.sleep(0.01)
    assert Backend.calls == [("abort", False)], Backend.calls
    group = Group(2, 0, 2)
    group.gloo, group.data, group.nccl = object(), Backend(), True
    started, start = [], threading.Thread.start
    threading.Thread.start = lambda t: started.append(t)
    group.condemn(print)
    group.bury()  # before the thread that aborts has run
    threading.Thread.start = start
    for t in started:
        t.start()
    while len(Backend.calls) < 2 and time.time() < end:
        time.sleep(0.01)
    assert Backend.calls == 2 * [("abort", False)], Backend.calls
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1"  # as the agent has it
    nccl.prepare(False)
    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "1"  # the process is to end
    nccl.prepare(True)
    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"


def nccl_versions():
    """Check that init refuses a torch that cannot use NCCL, and that an old NCCL is not aborted."""
    dist, available = torch.distributed, torch.cuda.is_available

    def refused():
        try:
            elasticdl.init("nccl")
        except elasticdl.Error as e:
            assert session._session is None
            return str(e)
        raise AssertionError("not refused")

    torch.cuda.is_available = dist.is_nccl_available = lambda: True
    for version in ("1.13.0a0", "2.0.1", "2.6.0+cu124"):
        torch.__version__ = version
        assert "needs torch 2.7 or newer, and this is torch %s:" % version in refused()
    for version in ("2.7.0a0+git1", "2.10.1", "3.0"):
        torch.__version__ = version
        nccl.check()
    dist.is_nccl_available = lambda: False
    assert "built without NCCL" in refused()
    dist.is_nccl_available, torch.cuda.is_available = lambda: True, lambda: False
    assert "sees no GPU" in refused()
    torch.cuda.is_available = lambda: True

    class ProcessGroupNCCL:
        def __init__(self, *_):
            raise RuntimeError("no GPU of its own")

        class Options:
            config = type("Config", (), {})()

    dist.ProcessGroupNCCL = ProcessGroupNCCL
    for asked, found, want in (
        ("", (2, 26, 2), False),
        ("abort", (2, 26, 2), True),
        ("abort", (3, 0, 0), True),
        ("abort", (2, 25, 9), False),
        ("abort", (1, 27, 0), False),
        ("abort", None, False),
    ):
        os.environ["ELASTICDL_NCCL"] = asked
        torch.cuda.nccl.version = lambda: found
        assert nccl.survives() is want, (asked, found)
    del torch.cuda.nccl.version  # a torch without CUDA
    assert nccl.version() is None
    try:
        elasticdl.init("nccl")
    except elasticdl.Error as e:
        assert str(e) == "the nccl group of this process cannot be made: no GPU of its own", e
        return
    raise AssertionError("without a group")


def stuck_beside_nccl():
    """Check that a wait in gloo ends when a group with NCCL is condemned.

    No connection reports the end.
    """
    group = Group(1, 0, 2)
    group.gloo, peer = gloo(1800)
    group.nccl, group.data = True, type("Backend", (), {"abort": lambda self: None})()
    group.store, groups.abort = torch.distributed.HashStore(), lambda group: ""
    groups._watch(group)
    for wait in (lambda: rounds.Header(group, 0, 1, []).rows(), lambda: states._spread_bytes(group, 1, b"")):
        threading.Timer(0.3, group.condemn, [print]).start()
        try:
            wait()
        except RuntimeError as e:
            assert "did not end" in str(e), e
            continue
        raise AssertionError("the peer has taken no part")


def alone():
    """Check that a script runs without an agent: gradients are means, and its errors are raised."""
    world = elasticdl.init()
    assert (world.rank, world.size) == (0, 1) and torch.distributed.get_world_size() == 1
    model = torch.nn.Linear(1, 1)
    unused = torch.nn.Parameter(torch.ones(1))
    model.register_parameter("unused", unused)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = elasticdl.State(model=model, optimizer=optimizer, epoch=0)
    data = [torch.tensor([float(i)]) for i in range(100)]
    seen = []

    @elasticdl.run
    def train(state):
        net = elasticdl.DistributedDataParallel(elasticdl.DistributedDataParallel(model).module)  # hooks are made once
        for x in elasticdl.records(data, 8, epochs=2):
            seen.extend(x.reshape(-1).tolist())
            optimizer.zero_grad()
            loss = net(x / 100).mean()
            loss.backward()
            assert unused.grad is None and abs(float(model.bias.grad) - 1) < 1e-6
            optimizer.step()
            elasticdl.step(loss)
            state.epoch += 1
        return state.epoch

    rounds_done = train(state)
    assert sorted(seen) == sorted(2 * [float(i) for i in range(100)])
    assert session.current().round == rounds_done and sum(session.current().ledger.values()) == 200
    assert elasticdl.leaving() is None
    try:
        state.other = 1
    except elasticdl.Error:
        pass
    else:
        raise AssertionError("a member that was not named")
    try:
        elasticdl.init()
    except elasticdl.Error:
        return
    raise AssertionError("init twice")


def misfits():
    """Check that an open epoch needs its own cut, and that complete epochs fit every data set.

    A ledger of an unknown cut is refused.
    """
    def cut_of(size=100, task=10, shuffle=True, seed=1):
        return leases.DataSet(size, 9, shuffle, seed, task).cut()

    def why(cut, ledger, settled, size=100, epochs=2, shuffle=True, seed=1, task=10):
        return leases.misfit(cut, leases.DataSet(size, epochs, shuffle, seed, task), ledger, settled)

    half, none = {(0, 3): 10, (0, 4): 2}, {(0, 3): 0}
    for ledger, settled in (({}, 0), (none, 0), (half, 0), ({(1, 0): 1}, 1), ({}, 1), ({}, 2)):
        assert why(cut_of(), ledger, settled) == "", (ledger, settled)
    for changed, words in (
        (dict(size=120), "size=100 (the script declares 120)"),
        (dict(size=99), "size=100 (the script declares 99)"),
        (dict(task=20), "records_per_task=10 (the script declares 20)"),
        (dict(seed=2), "seed=1 (the script declares 2)"),
        (dict(shuffle=False), "shuffle=True (the script declares False)"),
    ):
        assert (
            why(cut_of(), half, 0, **changed) == "it has records of an open epoch of a data set with " + words
        ), changed
        assert (
            why(cut_of(), {(1, 9): 1}, 1, **changed) == "it has records of an open epoch of a data set with " + words
        ), changed
        assert (
            why(cut_of(), {}, 0, **changed)
            == why(cut_of(), none, 0, **changed)
            == why(cut_of(), {}, 1, **changed)
            == ""
        ), changed
        assert why(cut_of(), half, 1, **changed) == "", changed  # of an epoch that is complete
    assert why(cut_of(), half, 0, size=101, seed=2).endswith(
        "size=100 (the script declares 101), seed=1 (the script declares 2)"
    )
    assert why(cut_of(shuffle=False), half, 0, shuffle=False, seed=2) == ""  # nothing is drawn from it
    assert why(cut_of(shuffle=False), half, 0, shuffle=True, seed=2).endswith(
        "shuffle=False (the script declares True), seed=1 (the script declares 2)"
    )
    assert "does not name their data set" in why(None, half, 0) and why(None, none, 0) == why(None, {}, 1) == ""
    assert why(cut_of(), {}, 3) == "it has 3 complete epochs, and the script declares epochs=2"
    assert (
        why(None, {(2, 0): 1}, 2) == "it has 2 complete epochs and records of another, and the script declares epochs=2"
    )
    assert (
        why(cut_of(), {}, 2, size=90)
        == "its 2 epochs are complete, of a data set with size=100 (the script declares 90, and no further epoch)"
    )
    assert why(cut_of(), {}, 2, seed=3, task=7) == "" and why(cut_of(), {}, 2, size=90, epochs=3) == ""


def settling():
    """Check that an epoch is complete when its tasks have all records of the data set."""
    cut_of = leases.DataSet(25, 3, records_per_task=10).cut()
    whole = {(0, 0): 10, (0, 1): 10, (0, 2): 5}
    assert leases.settle(cut_of, {}, 0) == 0 and leases.settle(cut_of, {}, 2) == 2
    assert leases.settle(cut_of, whole, 0) == 1 and leases.settle(cut_of, whole, 1) == 1
    for task, done in ((0, 9), (2, 4)):
        assert leases.settle(cut_of, {**whole, (0, task): done}, 0) == 0
    assert leases.settle(cut_of, {**whole, (1, 0): 10, (1, 1): 10}, 0) == 1
    assert leases.settle(cut_of, {**whole, (1, 0): 10, (1, 1): 10, (1, 2): 5, (2, 0): 3}, 0) == 2
    assert leases.settle(cut_of, {(0, 0): 10, (0, 1): 10, (0, 3): 5}, 0) == 0  # of another cut
    assert leases.settle(cut_of, {(0, 0): 10, (1, 0): 10, (1, 1): 10}, 0) == 0  # records of a later epoch do not count


def unfit():
    """Check that the data set is compared when it is declared, and when a state is received.

    A refused data set is not declared.
    """
    saved = saving.Checkpoints(os.path.join(os.environ["WHERE"], "saved"), 1)
    writer = session.Session("gloo", None)
    writer.round, writer.ledger, writer.cut = 3, {(0, 0): 4}, leases.DataSet(64, 1).cut()
    saved.write(writer, elasticdl.State(n=1))

    def refusal(do):
        try:
            do()
        except elasticdl.Error as e:
            return str(e)
        return ""

    reader = session.Session("gloo", None)
    saved.resume(reader)
    assert (reader.round, reader.ledger, reader.settled, reader.cut["size"]) == (3, {(0, 0): 4}, 0, 64)
    assert refusal(lambda: reader.declare(leases.DataSet(65, 1))) == (
        "checkpoint %s cannot be resumed: it has records of an open epoch of a data set with size=64 (the script declares 65), "
        "records_per_task=1 (the script declares 2); restore that data set, or give checkpoint() another path to start over"
        % saved.path
    )
    assert not reader.book.used and reader.cut["size"] == 64
    reader.declare(leases.DataSet(64, 1))
    assert reader.book.used
    assert "a job has one data set" in refusal(lambda: reader.declare(leases.DataSet(64, 2)))
    # has no checkpoint, and takes over a state after it has declared
    other = session.Session("gloo", None)
    other.declare(leases.DataSet(65, 1))
    assert other.cut["size"] == 65
    other.fit()
    other.ledger, other.cut = dict(reader.ledger), dict(reader.cut)
    assert "the state of the other ranks cannot be resumed" in refusal(other.fit)
    for same in (False, True):
        writer.cut = None
        saved.write(writer, elasticdl.State(n=1))
        old = session.Session("gloo", None)
        saving.Checkpoints(saved.path, 1, same).resume(old)
        said = refusal(lambda: old.declare(leases.DataSet(64, 1)))
        assert (
            same
            and old.cut["size"] == 64
            or "call checkpoint(path, same_data=True) if the data set is the same" in said
        ), said
    writer.cut, writer.ledger = leases.DataSet(64, 2).cut(), {(0, n): 1 for n in range(64)}
    writer.ledger[1, 5] = 1
    saved.write(writer, elasticdl.State(n=1))
    saved.resume(old)
    assert (old.settled, old.ledger) == (1, {(1, 5): 1})  # the first epoch is complete
    for field in ("size", "records_per_task"):
        writer.cut = dict(leases.DataSet(64, 2).cut(), **{field: 0})
        saved.write(writer, elasticdl.State(n=1))
        assert "impossible; give another path" in refusal(lambda: saved.resume(old)), field


def checkpoint_late():
    elasticdl.init()
    try:
        elasticdl.checkpoint(os.environ["WHERE"])
    except elasticdl.Error as e:
        assert "before" in str(e)
        return
    raise AssertionError("checkpoint() after init()")


def checkpoint_half():
    """Check that a checkpoint requested within a round has the state at the end of the round.

    If the round does not end, it is not written, which is reported.
    """
    path = os.path.join(os.environ["WHERE"], "saved")
    elasticdl.checkpoint(path, every=0)
    elasticdl.init()
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def saved():
        saving.declared.settle()
        read = session.Session("gloo", None)
        saving.Checkpoints(path, 0).resume(read)
        return read.round, sum(read.ledger.values()), float(read.loaded()["model"]["weight"])

    @elasticdl.run
    def train(state):
        elasticdl.checkpoint()  # between two rounds
        assert saved() == (0, 0, 0.0)
        net = elasticdl.DistributedDataParallel(model)
        for i, x in enumerate(elasticdl.records([torch.ones(1) for _ in range(8)], 2)):
            optimizer.zero_grad()
            (-net(x)).mean().backward()
            optimizer.step()
            if i in (1, 3):
                elasticdl.checkpoint()
                assert saved() == ((0, 0, 0.0) if i == 1 else (2, 4, 2.0))
            if i == 3:
                return
            elasticdl.step()
            if i == 1:
                assert saved() == (2, 4, 2.0), saved()
                shutil.rmtree(path)
                elasticdl.checkpoint()
                assert saved() == (2, 4, 2.0)

    try:
        train(elasticdl.State(model=model, optimizer=optimizer))
    except elasticdl.Error as e:
        assert "step() has not ended" in str(e), e
        assert saved() == (2, 4, 2.0) and saving._asked  # which the end of the process tells
        return
    raise AssertionError("it is lost silently")


def checkpoint_replaced():
    """Check that the resumed state is that of the round and ledger with which the process arrives.

    Another process may have written a newer one since.
    """
    places = saving.Checkpoints(os.path.join(os.environ["WHERE"], "saved"), 5)
    writer = session.Session("gloo", None)

    def write(count):
        writer.round, writer.ledger = count, {(0, 0): count}
        places.write(writer, elasticdl.State(count=count))

    write(40)
    reader = session.Session("gloo", None)
    places.resume(reader)
    write(50)
    assert (reader.round, reader.ledger, reader.loaded()) == (40, {(0, 0): 40}, {"count": 40})
    places.resume(reader)
    for file in glob.glob(places.path + "/*/state.pt"):
        os.truncate(file, 0)  # as if the open file were deleted
    write(60)

    def doubted(why):
        raise AssertionError(why)

    reader.doubt = doubted
    try:
        reader.loaded()
    except AssertionError as e:
        assert "no longer exists, there is a newer one" in str(e), e
        return
    raise AssertionError("it has a state")


def store():
    """Check that requests to the store end with their world, current ones and later ones."""
    import json

    from elasticdl.link import Cancelled, Link
    from elasticdl.store import AgentStore

    path = os.path.join(os.environ["WHERE"], "agent")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)
    link = Link(path, lambda m: None, lambda: None)
    peer, _ = listener.accept()
    link.start()

    def answer():
        for line in peer.makefile("rb"):
            m = json.loads(line)
            if m["op"] == "set":
                peer.sendall(json.dumps({"q": m["q"], "ok": None}).encode() + b"\n")

    threading.Thread(target=answer, daemon=True).start()
    kept = AgentStore(link, 3)
    kept.set("a", b"1")
    threading.Timer(0.1, lambda: link.cancel(3)).start()
    for _ in range(2):
        try:
            kept.get("never")
        except Cancelled:
            continue
        raise AssertionError("a get of a formation that is over returned")
    AgentStore(link, 4).set("a", b"1")


def half_a_state():
    """Check that a rank whose source is lost keeps its own state, round and ledger.

    One that has only a checkpoint reads that again: it may have a part of the source's state.
    """
    session._session = s = session.Session("gloo", None)
    s.group = Group(5, 1, 2)
    s.source, s.round, s.ledger = 0, 1000, {(0, 0): 1000}
    model = torch.nn.Linear(1, 1)
    model.weight.data.fill_(1000.0)
    state = elasticdl.State(model=model)
    pieces = states._Pieces(state.collect())
    skeletons = states._pickled({name: skeleton for name, (skeleton, _) in pieces.members.items()})
    states._gather = lambda group, row: [[1900, len(pieces)], row]
    states._hand_bytes = lambda *_: skeletons

    def lost(group, source, to, tensors, wait):
        tensors[0].fill_(1900.0)
        raise RuntimeError("Connection closed by peer")

    def changed(e):
        raise elasticdl.WorldChanged(str(e))

    states._hand, s.lost = lost, changed
    for live, loaded in ((True, None), (False, lambda: {})):
        s.live, s.loaded = live, loaded
        try:
            state.sync()
            raise AssertionError("it has the state")
        except elasticdl.WorldChanged:
            pass
        assert (s._arrival(), s.ledger) == (1000, {(0, 0): 1000})
        weight, torn = model.weight.item(), state.__dict__["_torn"]
        assert (weight, torn) == ((1000.0, False) if live else (1900.0, True))


def explained():
    """Check that errors of the script's own connections are not attributed to the world."""
    s = session.Session("gloo", None)
    s.link, asked = object(), []
    s._explain = asked.append
    for e in (
        ConnectionResetError(104, "Connection reset by peer"),
        BrokenPipeError(32, "Broken pipe"),
        ValueError("gloo"),
    ):
        assert not s.explains(e) and not asked
    assert s.explains(RuntimeError("[pair.cc:1] Connection closed by peer")) and len(asked) == 1
    s.link = None


def gloo(timeout, store=None):
    """Return the groups of two ranks in this process."""
    store, made = store or torch.distributed.HashStore(), {}

    def make(rank):
        made[rank] = torch.distributed.ProcessGroupGloo(
            torch.distributed.PrefixStore("two", store), rank, 2, timeout=timedelta(seconds=timeout)
        )

    threads = [threading.Thread(target=make, args=(rank,)) for rank in (0, 1)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return made.pop(0), made.pop(1)


class Late:
    """An object that makes the interpreter's end last longer than a collective without peers."""

    def __del__(self, sleep=time.sleep):
        for _ in range(20):
            # each time the interpreter's lock can be taken
            sleep(0.1)


def buried():
    """Check that a group whose destructor ends with the interpreter does not abort the process."""
    global late, peer
    group = Group(1, 0, 2)
    group.gloo, peer = gloo(1)
    group.data = group.gloo
    # of one rank only: it ends by its timeout, and the destructor waits for it
    group.gloo.allreduce([torch.ones(4)])
    group.bury()
    late = Late()


def unfinished():
    """Check that the interpreter's end waits for no peer in any group."""
    global peer
    first, peers = gloo(1800)
    group = Group(1, 0, 2)
    group.gloo = group.data = first
    group.store = torch.distributed.HashStore()
    group.publish()
    own, more = gloo(1800)
    peer = [peers, more]
    c10d = torch.distributed.distributed_c10d
    (c10d._world.pg_map if hasattr(c10d, "_world") else c10d._pg_map)[own] = ("gloo", None)  # as new_group does
    own.allreduce([torch.ones(4)])
    del own
    group.bury()  # does not wait
    last = Group(2, 0, 2)
    last.gloo, more = gloo(1800)
    peer.append(more)
    last.data, last.store = last.gloo, torch.distributed.HashStore()
    last.publish()
    last.gloo.allreduce([torch.ones(4)])


{
    "half_a_state": half_a_state,
    "checkpoint_replaced": checkpoint_replaced,
    "explained": explained,
    "buried": buried,
    "unfinished": unfinished,
    "permutation": permutation,
    "ledger": ledger,
    "losses": losses,
    "ended": ended,
    "scripts_groups": scripts_groups,
    "messages": messages,
    "long_messages": long_messages,
    "stays_open": stays_open,
    "nccl": aborting,
    "alone": alone,
    "misfits": misfits,
    "settling": settling,
    "unfit": unfit,
    "checkpoint_late": checkpoint_late,
    "checkpoint_half": checkpoint_half,
    "store": store,
    "nccl_versions": nccl_versions,
    "stuck_beside_nccl": stuck_beside_nccl,
}[sys.argv[1]]()
