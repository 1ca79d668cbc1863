"""The cases of test_units.py about replicas of sharded models."""

import os
import pathlib
import sys
import threading
import time

import torch

from elasticdl import replicas, rounds
from elasticdl.doubt import Error
from elasticdl.replicas import ENTERED, LEFT, PID, READY, VOTE, Replica


def mates(*formations):
    """Return the two processes of a worker, which are in these worlds, as objects of this process."""
    os.environ.update(ELASTICDL_SOCKET=os.path.join(os.environ["WHERE"], "agent"), LOCAL_WORLD_SIZE="2")
    made = []
    for local, formation in enumerate(formations):
        os.environ["LOCAL_RANK"] = str(local)
        made.append(Replica(lambda: True))
        if formation:
            made[-1].come(formation)
    return made


class Session:
    """The fields of a session that a process leaves its world with."""

    half, loaded, commit_name = False, None, ""

    def __init__(self, round, live=True):
        self.round, self.live = round, live


def raises(call, kind=RuntimeError):
    try:
        call()
    except kind as e:
        return str(e)
    raise AssertionError("nothing is raised")


def agreed():
    """Check that a process continues when its mate does, at the same place, in the same world."""
    a, b = mates(7, 7)
    for _ in range(3):
        thread = threading.Thread(target=b.agree)
        thread.start()
        a.agree()
        thread.join()
    b._write(VOTE, 7 << 32 | 4)
    b._write(LEFT, 7 << 40)
    a.agree()  # the vote counts, although b has left the world since
    assert "local rank 1 has left it" in raises(a.agree)


def older_votes():
    """Check that the votes of an earlier world do not count."""
    a, b = mates(3, 3)
    b._write(VOTE, 3 << 32 | 5)
    a.agree()
    a.come(4)
    b._write(LEFT, 4 << 40)
    assert "has left it" in raises(a.agree)


def lost_mate():
    """Check that the loss of a mate is noticed, as the end of its process or by another one."""
    a, b = mates(2, 2)
    a._pids = {1: os.getpid()}
    b._write(PID, 1)  # another process is that local rank now
    assert "has left it" in raises(a.agree)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    while open("/proc/%d/stat" % pid).read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.001)
    b._write(PID, pid)
    a._pids = {}
    assert "has left it" in raises(a.agree)
    os.waitpid(pid, 0)


def left():
    """Check which states of mates make a replica, when they have left a world."""
    ends = []
    replicas.leave = lambda code, why: ends.append((code, why))
    for mine, other, live, entered, lost in (
        (5, 5, True, 9, False),
        (5, 6, True, 9, True),
        (0, 0, True, 9, False),
        (5, 6, False, 9, False),  # a newcomer takes the state of another worker
        (5, 5, True, 0, False),   # the world ended before this process had a group there
    ):
        a, b = mates(entered, 9)
        b._write(LEFT, 9 << 40 | other + 1)
        a.leave(Session(mine, live))
        assert bool(ends) is lost, (mine, other, ends)
        assert a._read(0, LEFT) == (9 << 40 | (mine + 1 if live else 0) if entered else 0)
        ends.clear()
    a, b = mates(9, 8)  # and before its mate had one
    a.leave(Session(5))
    assert not ends
    a, b = mates(9, 9)
    a._pids = {1: os.getpid()}
    b._write(PID, 1)  # a newcomer whose mate is lost begins again with the next one
    a.leave(Session(5, False))
    assert [code for code, _ in ends] == [83]
    ends.clear()
    a, b = mates(9, 9)
    b._write(LEFT, 9 << 40 | 5 + 1)
    half = Session(5)
    half.half = True
    a.leave(half)
    assert [code for code, _ in ends] == [83] and "between allreduce_gradients() and step()" in ends[0][1]


def meeting():
    """Check that a process begins with mates that begin, and with none that is in a world."""
    a, b = mates(0, 0)
    assert a._begins(1) == 0
    b._write(READY, os.getpid() << 2 | 2)
    assert a._begins(1) == 2
    b._write(ENTERED, 3)
    assert a._begins(1) == 0
    b._write(ENTERED, 0)
    b._write(PID, 1)
    assert a._begins(1) == 0
    b._write(READY, 1 << 2 | 1)
    a.meet(1)
    assert a._pids == {1: 1}
    replicas.PATIENCE = 0.01
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    b._write(PID, pid)
    ends = []

    def leave(code, why):
        ends.append((code, why))
        b._write(READY, pid << 2 | 2)

    replicas.leave = leave
    a.meet(2)
    assert len(ends) == 1 and ends[0][0] == 81 and "local rank 1 of this worker has ended" in ends[0][1], ends


def header():
    """Check that the records of a round are known only when all mates know them."""
    group, ready = type("Group", (), {})(), []

    def agree():
        if not ready:
            raise RuntimeError("the world changed")

    group.size, group.gloo, group.wait, group.agree = 2, group, lambda work: ready.append(0), agree
    group.allgather = lambda tables, mine: "work"
    rounds.Header(group, 0, 1, []).rows()
    group.wait = lambda work: ready.clear()
    raises(lambda: rounds.Header(group, 0, 1, []).rows())


def partial():
    """Check that a worker that joins with a part of its processes is sent back, and no other."""
    (a,), ends = mates(4), []
    replicas.leave = lambda code, why: ends.append(why) or raises
    places = [[0, 0, 2], [0, 1, 2], [1, 0, 2]]
    assert "worker 1 has processes with the local ranks [0], expected 2" in raises(lambda: a.parts(0, places))
    assert not ends
    raises(lambda: a.parts(2, places))
    assert ends == ["this worker has joined with 1 of its 2 processes"]
    places.append([1, 1, 2])
    assert a.parts(3, places) == [("worker-1", 0, 2), ("local-rank-0", 1, 2)]


def apart():
    """Check that a state with shards can be taken apart, sent, and put together."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    mesh, other = (init_device_mesh("cpu", (1,), mesh_dim_names=(name,)) for name in ("worker", "other"))
    whole = torch.arange(12.0).reshape(4, 3)
    state = {"a": [distribute_tensor(whole, mesh, [Shard(0)]), (1, "x")], "b": {"c": torch.ones(2), "d": None}}
    flat = replicas.taken_apart(state, mesh)
    assert not any(replicas.is_shard(v) for v in flat["a"][0])
    again = replicas.put_together(flat, mesh)
    assert torch.equal(again["a"][0].full_tensor(), whole) and again["a"][1] == (1, "x")
    assert again["b"]["c"] is state["b"]["c"] and again["b"]["d"] is None
    assert "give worker_mesh() to fully_shard" in raises(lambda: replicas.taken_apart(state, other), Error)


if __name__ == "__main__":
    pathlib.Path(os.environ["WHERE"]).mkdir(exist_ok=True)
    globals()[sys.argv[1]]()
