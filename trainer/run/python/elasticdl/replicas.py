"""Replicas of a sharded model (HSDP): each worker has one, sharded over its processes.

A script's collectives among the processes of a worker use one process group, which is an object
that lasts. Behind it each world has a group of gloo's. So the model, whose parameters refer to
the group, is made once.

A replica is of use only if all processes of the worker have its shards of the same round. So the
processes of a worker, the *mates*, agree whenever a collective of the whole world has ended: either
all of them continue, or none does. Otherwise the loss of one process could cost all replicas: the
sum of its local rank's gradients fails everywhere, while those of the other local ranks end.
Between two such points a mate needs only its mates, and nothing but the loss of one of them
interrupts it. They agree in memory that they share, because a vote must have a result while groups
are being aborted: a mate that leaves the world has not voted. If a mate is lost, the others restart,
and take their shards from another worker.
"""

from __future__ import annotations

import mmap
import os
import pickle
import sys
import time
import zlib
from collections import OrderedDict
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.distributed as dist

from .doubt import DOUBT, RESTART, Error, leave
from .outside import NoStore, Outside, _OF_GROUPS

#: Name of the group of a worker's processes in torch.distributed.
NAME = "elasticdl-worker"
#: The words that a process writes for its mates, each at once: its pid, how far its beginning has
#: come, the formation that it has entered last, its newest vote, and the last formation that it has
#: left, with the number of its state.
PID, READY, ENTERED, VOTE, LEFT = range(5)
#: Numbers of each process in the shared memory.
_WIDTH = 8
#: Bits of the number of a state, and of that of a vote.
_STATE, _VOTE = 40, 32
#: Maximum wait for the next process of a mate's local rank, in seconds.
PATIENCE = 60.0
#: Looks at the votes of mates before the process sleeps between two.
SPINS = 100
#: Marks a shard in a structure of plain values.
_SHARD = "elasticdl.shard"


class Part(NamedTuple):
    """Some of the ranks of a world, with the methods of a Group that states and checkpoints need."""

    gloo: Any
    rank: int
    size: int
    wait: Callable[[Any], bool]
    store: Any


class Row(Outside):
    """The process group of a worker's processes, for the script. It lasts, unlike worlds."""

    replica: "Replica"
    group_name = NAME

    def getGroupName(self) -> str:
        return NAME

    def setGroupName(self, name: str) -> None:
        """Do nothing: the name is constant."""


def _forwarded(name: str) -> Callable[..., Any]:
    """Return a method that does a collective in the present world, and waits for it."""

    def method(row: Row, *args: Any, **kwargs: Any) -> Any:
        inner = row.replica.inner
        if inner is None:
            raise Error(
                "%s: this process has not joined the others: use worker_mesh()'s group under @elasticdl.run" % name
            )
        work = getattr(inner, name)(*args, **kwargs)
        if work is not None:
            row.replica.wait(work)
        return work

    return method


def _no_message(row: Row, *args: Any, **kwargs: Any) -> Any:
    raise Error("send and recv: worker_mesh()'s group has collectives only: use these, or a group of dist.new_group()")


for _name in ["barrier", "monitored_barrier", *filter(_OF_GROUPS.match, dir(dist.ProcessGroup))]:
    setattr(Row, _name, _no_message if _name.startswith(("send", "recv")) else _forwarded(_name))


class Replica:
    """The part of this process in the replica of its worker."""

    def __init__(self, recalled: Callable[[], bool]) -> None:
        self.local, self.size = 0, 1
        if "ELASTICDL_SOCKET" in os.environ:
            self.local = int(os.environ.get("LOCAL_RANK", "0"))
            self.size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self.recalled = recalled
        self.formation = 0         # that this process is in; 0: none
        self.inner: Any = None     # group of the mates in this world
        self._pids: Dict[int, int] = {}  # of the mates with which this process has begun
        self._votes = 0
        self._row: Optional[Row] = None
        self._places: List[List[int]] = []  # worker, local rank and processes, of each rank
        self._mesh: Any = None
        self._table = _shared(self.size)
        for word, value in ((READY, 0), (ENTERED, 0), (VOTE, 0), (LEFT, 0), (PID, os.getpid())):
            self._write(word, value)

    def _write(self, word: int, value: int) -> None:
        self._table[self.local * _WIDTH + word] = value

    def _read(self, mate: int, word: int) -> int:
        return int(self._table[mate * _WIDTH + word])

    @property
    def _mates(self) -> List[int]:
        return [i for i in range(self.size) if i != self.local]

    # Worlds.

    def meet(self, stage: int) -> None:
        """Wait until all mates have come to this stage of their beginning.

        An agent waits only for a short time for the others when one of its processes has arrived.
        A mate that is in a world is not beginning: it leaves it, and restarts. The process ends with
        ``DOUBT`` if a mate has ended, and is not started again.
        """
        self._write(READY, os.getpid() << 2 | stage)
        for m in self._mates:
            self._pids.pop(m, None)
            began = last = time.monotonic()
            noted = False
            while self._begins(m) < stage:
                if not self._read(m, PID) or not self._dead(m):
                    last = time.monotonic()  # that it was alive, or had yet to call init()
                if not noted and time.monotonic() - began > PATIENCE:
                    noted = True
                    sys.stderr.write("elasticdl: waiting for local rank %d of this worker to begin\n" % m)
                    sys.stderr.flush()
                if time.monotonic() - last > PATIENCE:
                    leave(DOUBT, "local rank %d of this worker has ended, and each has a part of the model" % m)
                time.sleep(0.005)
            self._pids[m] = self._read(m, PID)

    def _begins(self, mate: int) -> int:
        """Return the stage to which a mate has come that begins with this process; 0: none."""
        pid, stage = divmod(self._read(mate, READY), 4)
        return stage if pid == self._read(mate, PID) and self._read(mate, ENTERED) == 0 else 0

    def come(self, formation: int) -> List[int]:
        """Enter a world; return this process's place in it, which all ranks gather."""
        self.formation, self._votes = formation, 0
        self._write(ENTERED, formation)
        return [int(os.environ.get("GROUP_RANK", "0")), self.local, self.size]

    def parts(self, rank: int, places: List[List[int]]) -> List[Tuple[str, int, int]]:
        """Return the groups to make in a world, each with this process's rank and size.

        They are that of the mates, and that of the same local rank in all workers. If a worker
        comes without all its processes, these processes end, to be restarted together; raise
        RuntimeError in the others.
        """
        mine = places[rank][0]
        workers = _workers(places)
        for worker in workers:
            locals_ = sorted(place[1] for place in places if place[0] == worker)
            if worker == mine and len(locals_) < self.size:
                leave(RESTART, "this worker has joined with %d of its %d processes" % (len(locals_), self.size))
            if locals_ != list(range(self.size)):
                raise RuntimeError(
                    "worker %d has processes with the local ranks %s, expected %d processes, as in all workers"
                    % (worker, locals_, self.size)
                )
        return [("worker-%d" % mine, self.local, self.size),
                ("local-rank-%d" % self.local, workers.index(mine), len(workers))]

    def enter(self, rank: int, places: List[List[int]], inner: Any, register: Callable[..., Any]) -> None:
        """Use this group of the mates, all of whom have entered the world."""
        self.inner, self._places = inner, places
        mine = self._places[rank][0]
        ranks = {place[1]: i for i, place in enumerate(self._places) if place[0] == mine}
        self.publish(register, {ranks[i]: i for i in range(self.size)})  # in the order of the mesh

    def publish(self, register: Callable[..., Any], ranks: Optional[Dict[int, int]] = None) -> None:
        """Enter the group into torch.distributed's tables, from which each world removes it."""
        if self._row is None:
            self._row = Row(self.local, self.size)
            self._row.replica = self
        if ranks is None:  # of a newcomer, which has no rank yet
            first = int(os.environ["RANK"]) - self.local
            ranks = {first + i: i for i in range(self.size)}
        register(self._row, NAME, NoStore(), ranks)

    def mesh(self) -> Any:
        from torch.distributed.device_mesh import DeviceMesh

        if self._mesh is None:
            self._mesh = DeviceMesh.from_group(self._row, "cpu", mesh_dim_names=("worker",))
        return self._mesh

    def leave(self, session: Any) -> None:
        """Leave the world, when all mates that have entered it have left it.

        If one is lost or has another state, or if mates may have applied an update of which others
        have not, the replica is lost. Then this process ends, to be restarted.
        """
        formation, self.formation, self.inner = self.formation, 0, None
        if not formation:
            return
        mine = formation << _STATE | state_row(session)[0] + 1
        self._write(LEFT, mine)
        for m in self._mates:
            while self._entered(m, formation) and self._read(m, LEFT) >> _STATE < formation and not self._dead(m):
                time.sleep(0.002)
            if self._dead(m) or session.live and self._entered(m, formation) and self._read(m, LEFT) != mine:
                leave(RESTART, "the shards of this worker are lost with its local rank %d" % m)
        if session.half:
            leave(
                RESTART,
                "a collective of all ranks has failed between allreduce_gradients() and step(), so shards of this "
                "worker may have different updates: move it before or after these",
            )

    def _entered(self, mate: int, formation: int) -> bool:
        return self._read(mate, ENTERED) >= formation

    def _dead(self, mate: int) -> bool:
        """Return whether the process that was this mate has ended."""
        pid = self._pids.get(mate, 0) or self._read(mate, PID)
        if pid != self._read(mate, PID):
            return True
        try:
            with open("/proc/%d/stat" % pid) as stat:
                return stat.read().rpartition(")")[2].split()[0] in "ZX"
        except (OSError, IndexError):
            return True

    def _left(self, mate: int) -> bool:
        return self._read(mate, LEFT) >> _STATE >= self.formation or self.recalled() and self._dead(mate)

    # Agreement.

    def wait(self, work: Any) -> bool:
        """Wait for a collective of the mates.

        Raise RuntimeError if it has failed, or has not ended although a mate has left the world.
        """
        from .group import LOOK, _plain_wait

        while True:
            over = any(self._left(m) for m in self._mates)
            try:
                return bool(_plain_wait(work, LOOK))
            except RuntimeError:
                if work.is_completed():
                    return bool(_plain_wait(work))
            if over:
                raise RuntimeError("the world changed, and a collective of this worker's processes did not end")

    def agree(self) -> None:
        """Continue when all mates are here; raise RuntimeError if one has left the world before."""
        self._votes += 1
        mine = self.formation << _VOTE | self._votes
        self._write(VOTE, mine)
        for m in self._mates:
            looks = 0
            while self._read(m, VOTE) < mine:
                if self._left(m) and self._read(m, VOTE) < mine:
                    raise RuntimeError("the world changed, and local rank %d has left it" % m)
                looks += 1
                time.sleep(0 if looks < SPINS else 0.0005)

    # State.

    def across(self, session: Any, rows: List[List[int]]) -> Tuple[Part, int]:
        """Return the processes of this local rank, and the one among them with the newest state.

        ``rows`` has the state_row of each rank. If the agent's source has no whole replica, its
        worker restarts; raise RuntimeError in the others.
        """
        group = session.group
        worker = self._places[max(session.source, 0)][0]
        states = {tuple(row) for row, place in zip(rows, self._places) if place[0] == worker}
        if session.source >= 0 and (len(states) > 1 or min(states)[0] < 0):
            if self._places[group.rank][0] == worker:
                leave(RESTART, "the shards of this worker are of different rounds")
            raise RuntimeError("the world changed: the worker with the newest state has not all shards of it")
        across = group.across
        column = Part(across, across.rank(), across.size(), group.wait, group.store)
        return column, _workers(self._places).index(worker)

    def equal(self, session: Any, state: Any) -> None:
        """Give the processes of this worker, which has the newest state, the same plain values.

        A script may have changed its values in some of them only, when a collective of all ranks
        ended there and failed in others.
        """
        from .states import _gather, _pickled, _spread_bytes

        if self.size == 1:
            return
        shards: List[Any] = []
        part = self._part(session.group)
        body = _pickled(_plain(state.collect(), shards))
        rows = _gather(part, [zlib.crc32(body), len(body)])
        if all(row == rows[0] for row in rows):
            return
        body = _spread_bytes(part, self._places[max(session.source, 0)][1], body)
        state.load(_with_shards(pickle.loads(body), shards))

    def writers(self, group: Any) -> Optional[Part]:
        """Return the processes that write checkpoints, those of rank 0's worker; None in others."""
        if self._places[group.rank][0] != self._places[0][0]:
            return None
        return self._part(group)

    def _part(self, group: Any) -> Part:
        return Part(group.mates, self.local, self.size, self.wait, group.store)

    def any_writer(self, session: Any, mine: bool) -> bool:
        """Return whether it is true of a process that writes checkpoints; False in the others."""
        from .states import _gather

        part = self.writers(session.group)
        return part is not None and any(row[0] for row in _gather(part, [int(mine)]))


def _workers(places: List[List[int]]) -> List[int]:
    """Return the workers in the order of the ranks of the group of one local rank."""
    return sorted({place[0] for place in places})


def state_row(session: Any) -> List[int]:
    """Return two numbers that are equal for shards of the same state; the first is -1 without one.

    The state is that in memory, or of the checkpoint that is to be read.
    """
    if session.live or session.loaded is None:
        return [session.round if session.live else -1, 0]
    return [session.round, 1 + zlib.crc32(session.commit_name.encode())]


def _shared(processes: int) -> Any:
    """Return memory that the processes of the worker share: ``_WIDTH`` numbers for each."""
    size = 8 * _WIDTH * processes
    socket = os.environ.get("ELASTICDL_SOCKET")
    if not socket:
        return memoryview(mmap.mmap(-1, size)).cast("q")
    fd = os.open(os.path.join(os.path.dirname(socket), "replica"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(fd, size)
        return memoryview(mmap.mmap(fd, size)).cast("q")
    finally:
        os.close(fd)


# Shards. The package is used with versions of torch that have no DTensor.


def is_shard(value: Any) -> bool:
    return hasattr(value, "to_local") and hasattr(value, "device_mesh")


def local(t: torch.Tensor) -> torch.Tensor:
    """Return this process's part of a tensor, which shares its memory."""
    return t.detach().to_local() if is_shard(t) else t


def like(t: Any, part: torch.Tensor) -> Any:
    """Return a tensor that is sharded as ``t`` is, with this part in this process."""
    return _sharded(part, t.device_mesh, t.shape, t.stride(), t.placements) if is_shard(t) else part


def _sharded(part: torch.Tensor, mesh: Any, shape: Any, stride: Any, placements: Any) -> Any:
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(part, mesh, placements, run_check=False, shape=torch.Size(shape), stride=tuple(stride))


def taken_apart(value: Any, mesh: Any) -> Any:
    """Return a state with a plain tuple for each sharded tensor: its local part, and its layout.

    Raise Error if a tensor is not sharded over ``mesh``.
    """
    if is_shard(value):
        if value.device_mesh != mesh:
            raise Error(
                "a tensor of the State is sharded over %s: give worker_mesh() to fully_shard" % (value.device_mesh,)
            )
        return _SHARD, local(value), list(value.shape), list(value.stride()), list(value.placements)
    return _changed(value, lambda v: taken_apart(v, mesh))


def put_together(value: Any, mesh: Any) -> Any:
    """Return the state that was taken apart, with shards in this process's mesh."""
    if type(value) is tuple and value and type(value[0]) is str and value[0] == _SHARD:
        _, part, shape, stride, placements = value
        return _sharded(part, mesh, shape, stride, placements)
    return _changed(value, lambda v: put_together(v, mesh))


def _plain(value: Any, shards: List[Any]) -> Any:
    """Return a state with a number for each sharded tensor; append these to ``shards``."""
    if is_shard(value):
        shards.append(value)
        return _SHARD, len(shards) - 1
    return _changed(value, lambda v: _plain(v, shards))


def _with_shards(value: Any, shards: List[Any]) -> Any:
    if type(value) is tuple and value and type(value[0]) is str and value[0] == _SHARD:
        return shards[value[1]]
    return _changed(value, lambda v: _with_shards(v, shards))


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of a structure, as a state_dict() has it, with each value changed."""
    if type(value) in (dict, OrderedDict):
        made = type(value)((k, change(v)) for k, v in value.items())
        if hasattr(value, "_metadata"):
            made._metadata = value._metadata
        return made
    return type(value)(change(v) for v in value) if type(value) in (list, tuple) else value


def worker_mesh() -> Any:
    """Return the DeviceMesh of this worker's processes, for ``fully_shard(model, mesh=…)``.

    It is the same in all worlds. Raise Error without ``init(sharded="worker")``.
    """
    from .session import current

    replica = current().replica
    if replica is None:
        raise Error('worker_mesh() needs elasticdl.init(sharded="worker")')
    return replica.mesh()
