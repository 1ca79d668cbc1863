"""The process group of one world, which can be left whatever its peers do.

A group can hang in three places: a constructor waits for a peer that died, a collective for one
that is silent, a destructor for both. So the group is constructed in a thread that may be
abandoned, its operations are ended by another thread (see abort.py), and its last references are
dropped in a third.

An abort does not end every wait in a collective. When a connection ends, gloo reports it to
operations whose message has not begun, but forgets the one whose message is in flight
(``Pair::signalException`` omits the unbound buffers of ``tx_`` and ``rx_``). Such an operation
would wait until the timeout of the collective. So no wait in gloo is longer than ``LOOK`` without a
look at whether the group is aborted. For a message of send or recv another thread waits: gloo
treats the end of such a wait by its timeout as the loss of the peer.

Each world has a new group. torch 2.14 and later can re-form a group (``_reconfigure``,
experimental), but gloo's cannot be left whatever its peers do. Nothing ends the call if another
peer is lost meanwhile. When it times out, it undoes a later call that has succeeded. Nor does it end
operations that wait for a frozen peer: they keep the group's two threads, and later operations have
none. It is not faster either: with torch 2.15 and 2 to 4 processes it takes 0.6 to 1 times as long
as a new group if an abort has closed the connections before, else 2.5 to 3.5 times.

Before 3.14, Python ends a thread that wants its lock while the interpreter ends; inside C++ that
aborts the process. So the interpreter waits at its end for two kinds of threads. The first
construct and drop groups; those that take too long are stopped. The second are gloo's own, each of
which drops the tensors of its last collective some time after its waiter has continued. The last
group is never destroyed.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
import weakref
from datetime import timedelta
from typing import Any, Callable, List, NamedTuple, Optional, Set

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from . import nccl
from .abort import abort, of_gloo
from .outside import NoStore, Outside
from .replicas import Replica

#: Timeout of a constructor, when all ranks are ready, and of a collective or message. The latter
#: may be long, because the group is aborted when a peer is lost.
MAKE, TALK = timedelta(seconds=60), timedelta(minutes=30)
#: Time between two looks, during a wait, at whether the group is aborted.
LOOK = timedelta(milliseconds=100)
#: Maximum wait for threads inside gloo at the end of the interpreter. A destructor takes about
#: 0.1 s, under load 1 s.
REST = timedelta(seconds=2)
#: Maximum wait for gloo's own threads, which need some microseconds of a processor.
SETTLE = timedelta(seconds=1)

_MODERN = hasattr(c10d, "_world")  # torch ≥ 2.0: a ProcessGroup has backends


#: Words in errors of torch and gloo when a peer is lost. Errors of the script's code have others.
MESSAGES = (
    "gloo",
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Socket",
    "NCCL",
    "DistBackendError",
    "DistNetworkError",
    "Timed out waiting",
    "process group",
    "the world changed",
)


class World(NamedTuple):
    """The processes that train together, and the rank of this one.

    ``rank`` is in [0, ``size``), and ``local_rank`` is the rank on this machine. ``formation`` is
    the generation: it rises with each world. It is 0 for a newcomer that has yet to join the others,
    which train: then ``rank`` and ``size`` are those that it would have now.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    formation: int = 0
    survivor: bool = False  # it brought state from an earlier world


class Group:
    """The process group of one world.

    ``gloo`` is for the package's own messages and ``data`` for gradients. They are the same object,
    unless the backend is NCCL. With replicas ``across`` sums gradients of the processes of one local
    rank, which have the same shards. Without them all ranks do, and it is ``data``.
    """

    def __init__(self, formation: int, rank: int, size: int, replica: Optional[Replica] = None) -> None:
        self.formation, self.rank, self.size = formation, rank, size
        self.replica = replica
        self.across: Any = None
        self.mates: Any = None  # group of this worker's processes, if they have one
        self.places: List[List[int]] = []  # of all ranks, see Replica.come
        self.gloo: Any = None
        self.data: Any = None
        self.nccl = False
        # torch.distributed's default group; None: not published
        self._public: Any = None
        self.store: Any = None
        self._condemned = False
        self._aborted = False
        self._buried = False
        self._lock = threading.Lock()

    def make(self, store: Any, backend: str, tell: Callable[[Optional[Exception]], None]) -> None:
        """Construct the group in a thread of its own.

        The thread then calls ``tell``, with None or with the error. If the group was buried
        meanwhile, the thread drops it.
        """
        place = [] if self.replica is None else self.replica.come(self.formation)

        def construct() -> None:
            try:
                made = _gloo(store, self.rank, self.size)
                data = made
                if backend == "nccl":
                    data = nccl.make(dist.PrefixStore("nccl", store), self.rank, self.size)
                mates, across = None, data
                if self.replica is not None:
                    self.places = _places(made, place)
                    if self._buried:
                        return
                    parts = self.replica.parts(self.rank, self.places)
                    mates, across = [_gloo(dist.PrefixStore(name, store), r, n) for name, r, n in parts]
                with self._lock:
                    if self._buried:
                        # The group is abandoned: this thread drops it.
                        return
                    self.gloo, self.data, self.store = made, data, store
                    self.mates, self.across = mates, across
            except Exception as e:  # a RuntimeError of C++
                tell(RuntimeError(str(e)))
                return
            tell(None)

        self.nccl = backend == "nccl"
        _go_inside(construct, "elasticdl-group")

    def publish(self) -> None:
        """Make the group torch.distributed's default group. Main thread only."""
        _watch(self)
        self._public = _publish(self.gloo, self.data, self.store, self.size)
        if self.replica is not None:
            inner = _wrapped(self.mates, self.mates, self.store)
            self.replica.enter(self.rank, self.places, inner, enter_tables)

    @property
    def shards(self) -> int:
        """The number of ranks over which a script's wrapper averages gradients."""
        return self.size if self.replica is None else self.replica.size

    def agree(self) -> None:
        """Continue after a collective of all ranks, if the other processes of this worker do, too.

        Raise RuntimeError if one of them does not. Without replicas each rank decides for itself.
        """
        if self.replica is not None:
            self.replica.agree()

    def condemn(self, doubt: Callable[[str], object]) -> None:
        """Abort the group and the script's groups, so that every wait in them ends.

        Groups that the script makes later are aborted, too, until this one is buried. ``doubt`` is
        called in a thread of its own, if a group cannot be aborted.
        """
        with self._lock:
            if self._condemned or _ending.is_set():
                return
            self._condemned = True
            # It may be buried before the thread runs.
            data = [self.data] if self.nccl and self.data is not None else []
            groups = [] if self._buried else of_gloo([self.gloo, self.across, *_world_groups()])
            _go_inside(lambda: self._abort(data, groups, doubt), "elasticdl-abort")

    def _abort(self, data: List[Any], groups: List[Any], doubt: Callable[[str], object]) -> None:
        if data:
            try:
                nccl.abort(data[0])
            except Exception as e:
                doubt("aborting NCCL's group failed: %s" % e)
        fresh = list(groups)
        while True:
            _abort_all(fresh, doubt)
            self._aborted = True
            fresh = [g for g in of_gloo(_world_groups()) if all(g is not known for known in groups)]
            if self._buried or _ending.is_set():  # these may be groups of the next world
                break
            groups += fresh
            if not fresh:
                time.sleep(0.02)
        # These lists may have the last references.
        for references in (data, groups, fresh):
            _go_inside(references.clear, "elasticdl-grave")

    def wait(self, work: Any) -> bool:
        """Wait for a collective of gloo.

        Raise RuntimeError if it has failed, or has not ended although the group is aborted.
        """
        while True:
            over = self._aborted
            try:
                return bool(_plain_wait(work, LOOK))
            except RuntimeError:
                if work.is_completed():  # it has failed, or has ended just now
                    return bool(_plain_wait(work))
            if over:
                raise RuntimeError("the world changed, and a collective of gloo's did not end")

    def wait_message(self, work: Any) -> bool:
        """Wait for a message of send or recv.

        For gloo the end of a wait by its timeout is the loss of the peer. So another thread waits.
        Raise RuntimeError if it has failed, or has not ended although the group is aborted.
        """
        done = threading.Event()
        failures: List[RuntimeError] = []

        def run() -> None:
            try:
                _plain_wait(work, _messages.get(work, timedelta(0)))
            except RuntimeError as e:
                failures.append(e)
            done.set()

        _go_inside(run, "elasticdl-message")
        over = False
        while not done.wait(LOOK.total_seconds()):
            if over:
                raise RuntimeError("the world changed, and a message of gloo's did not end")
            over = self._aborted
        if failures:
            raise failures[0]
        return True

    def leave(self, session: Any) -> None:
        """Leave the world with this group. The process ends if its part of a replica is lost."""
        if self.replica is not None:
            self.replica.leave(session)
        self.bury()

    def bury(self) -> None:
        """Drop the group without waiting for it. Main thread only.

        The object cannot be used afterwards.
        """
        grave: List[Any] = []
        if self._public is not None:
            grave.extend(_world_groups())  # the script's groups, too
            _unpublish()
        with self._lock:
            self._buried = True
            grave += [self._public, self.gloo, self.data, self.across, self.mates, self.store]
            made, mates = self.gloo is not None, of_gloo([self.mates])
            self._public = self.data = self.across = self.mates = self.store = None

        def drop() -> None:
            _abort_all(mates, lambda why: None)  # the others may still wait in it
            mates.clear()
            grave.clear()  # its destructor joins the group's threads

        if made:
            self.gloo = None
            _go_inside(drop, "elasticdl-grave")


def _abort_all(groups: List[Any], doubt: Callable[[str], object]) -> None:
    for group in groups:
        why = abort(group)
        if why:
            doubt("aborting a group of gloo failed: %s" % why)


_inside: List[threading.Thread] = []  # may be in C++ code
_inside_lock = threading.Lock()
_ending = threading.Event()  # the interpreter ends: nothing more is aborted


def _go_inside(run: Callable[[], None], name: str) -> None:
    """Run C++ code that may take long in a thread of its own."""
    t = threading.Thread(target=run, name=name, daemon=True)
    with _inside_lock:
        t.start()
        _inside[:] = [other for other in _inside if other.is_alive()] + [t]


@atexit.register
def _rest() -> None:
    """Wait for threads in C++ at the interpreter's end, and do not let it destroy the last group.

    A thread that takes too long is stopped, so that it does not return from C++ to Python.
    """
    _ending.set()
    if _watched is not None:
        for kept in (_watched.gloo, _watched.data, _watched.across, _watched.mates, *_world_groups()):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))  # its destructor would wait for peers
    end = time.monotonic() + REST.total_seconds()
    for t in _inside:
        t.join(max(0.0, end - time.monotonic()))
    last = [t for t in _inside if t.is_alive()]
    if last:
        libc = ctypes.CDLL(None)
        stop = signal.SIGRTMAX - 1
        # Python 3.14 lets such threads wait for ever, too.
        libc.signal(int(stop), ctypes.cast(libc.pause, ctypes.c_void_p))
        for t in last:
            signal.pthread_kill(t.ident or 0, stop)
    if _watched is not None and sys.version_info < (3, 14):
        _settle()


def _settle() -> None:
    """Wait until gloo's threads have dropped their tensors.

    They have when all threads that are not Python's sleep, at three looks in a row. Give up after
    ``SETTLE``.
    """
    end = time.monotonic() + SETTLE.total_seconds()
    asleep = 0
    while asleep < 3 and time.monotonic() < end:
        # This releases Python's lock, so that a thread that waits for it can run.
        time.sleep(0.001)
        asleep = (
            asleep + 1 if _all_sleep({t.native_id for t in threading.enumerate()} | {threading.get_native_id()}) else 0
        )


def _all_sleep(pythons: Set[Optional[int]]) -> bool:
    """Return whether all threads of the process sleep, except for Python's."""
    for thread in os.listdir("/proc/self/task"):
        if int(thread) in pythons:
            continue
        try:
            with open("/proc/self/task/%s/stat" % thread) as stat:
                if stat.read().rpartition(")")[2].split()[0] != "S":
                    return False
        except OSError:
            pass  # it has ended
    return True


_plain_wait: Any = dist.Work.wait
_watched: Optional[Group] = None


def _watch(group: Group) -> None:
    """Make every wait in torch.distributed, also the script's, end with the world of this group."""
    global _watched
    _watched = group
    setattr(dist.Work, "wait", _wait)
    for kind in (dist.ProcessGroup, dist.ProcessGroupGloo):
        for name in ("send", "recv", "recv_anysource"):
            plain = getattr(kind, name)
            if not hasattr(plain, "elasticdl"):
                setattr(kind, name, _noted(plain))


#: Works of send and recv that were not waited for, and how long that may last. It is 0 in the
#: script's groups, which have their own timeouts. For messages gloo knows only that of the
#: constructor, which is short in the world's groups.
_messages: "weakref.WeakKeyDictionary[Any, timedelta]" = weakref.WeakKeyDictionary()


def _noted(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that notes its work as that of a message."""

    def method(group: Any, *args: Any, **kwargs: Any) -> Any:
        work = plain(group, *args, **kwargs)
        if work is not None:
            w = _watched
            ours = w is not None and any(group is g for g in (w.gloo, w.across, w._public))
            _messages[work] = TALK if ours else timedelta(0)
        return work

    setattr(method, "elasticdl", True)
    return method


def _wait(work: Any, timeout: timedelta = timedelta(0)) -> bool:
    """Replace ``Work.wait``, so that a wait in gloo ends when the group is aborted.

    A wait with a timeout ends at its timeout. With NCCL, the abort of its group ends waits. A wait
    does not show to which backend it belongs, so with NCCL the package waits for its own
    collectives of gloo by ``Group.wait``.
    """
    group = _watched
    if group is None or timeout or group.size == 1 or group.nccl:
        return bool(_plain_wait(work, timeout))
    return group.wait_message(work) if work in _messages else group.wait(work)


def _gloo(store: Any, rank: int, size: int) -> Any:
    """Return gloo's group for this rank.

    In torch 1.13 the timeout of the constructor is the timeout of all operations.
    """
    prefixed = dist.PrefixStore("gloo", store)
    if not _MODERN:
        return dist.ProcessGroupGloo(prefixed, rank, size, timeout=TALK)
    made = dist.ProcessGroupGloo(prefixed, rank, size, timeout=MAKE)
    if hasattr(made, "_set_default_timeout"):
        made._set_default_timeout(TALK)
    return made


def _places(gloo: Any, place: List[int]) -> List[List[int]]:
    """Gather the place of each rank, while the group is being made."""
    mine = torch.tensor(place)
    table = torch.empty(gloo.size(), len(place), dtype=torch.int64)
    _plain_wait(gloo.allgather([list(table.unbind(0))], [mine]), MAKE)
    return [list(map(int, row)) for row in table.tolist()]


def _publish(gloo: Any, data: Any, store: Any, size: int) -> Any:
    """Register the default group as init_process_group does, but without its barrier; return it."""
    store = dist.PrefixStore("default", store)
    name = "gloo" if data is gloo else "cpu:gloo,cuda:nccl"
    if not _MODERN:
        return _register(gloo, name, store, size)
    return _register(_wrapped(gloo, data, store), name, store, size)


def _wrapped(gloo: Any, data: Any, store: Any) -> Any:
    """Return a group of torch's that has these two as its backends."""
    kinds = dist.ProcessGroup.BackendType
    public = dist.ProcessGroup(store, gloo.rank(), gloo.size())
    public._set_default_backend(kinds.GLOO if data is gloo else kinds.NCCL)
    public._register_backend(torch.device("cpu"), kinds.GLOO, gloo)
    public._register_backend(torch.device("cuda"), kinds.GLOO if data is gloo else kinds.NCCL, data)
    return public


def stay_outside(world: World) -> None:
    """Make the default group, and the environment, those of a process outside that world."""
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(world.rank), str(world.size)
    _register(Outside(world.rank, world.size), "gloo", NoStore(), world.size)


def _register(public: Any, name: str, store: Any, size: int) -> Any:
    """Enter a group as the default one into torch.distributed's tables; return it."""
    _unpublish()
    if not _MODERN:
        c10d._pg_map[public] = (name, store)
        c10d._pg_names[public] = "0"
        c10d._pg_group_ranks[public] = {i: i for i in range(size)}
        c10d._group_count = 1
        c10d._update_default_pg(public)
        return public
    enter_tables(public, "0", store, {i: i for i in range(size)}, name)
    c10d._world.group_count = 1
    c10d._update_default_pg(public)
    return public


def enter_tables(group: Any, label: str, store: Any, ranks: Any, backend: str = "gloo") -> None:
    """Enter a group into torch.distributed's tables: its name, and its ranks by global rank."""
    world = c10d._world
    if hasattr(group, "_set_group_name"):
        group._set_group_name(label)
    world.pg_map[group] = (backend, store)
    world.pg_names[group] = label
    world.pg_group_ranks[group] = ranks
    if hasattr(world, "pg_backend_config"):
        world.pg_backend_config[group] = str(c10d.BackendConfig(c10d.Backend(backend)))
    if hasattr(world, "tags_to_pg"):
        world.tags_to_pg.setdefault("", []).append(group)
        world.tags_to_pg.setdefault("ptd:" + label, []).append(group)
        world.pg_to_tag[group] = "ptd:" + label
    if hasattr(c10d, "_register_process_group"):
        c10d._register_process_group(label, group)


def _world_groups() -> List[Any]:
    """Return all groups in torch.distributed's tables."""
    return list(c10d._world.pg_map if _MODERN else c10d._pg_map)


def _unpublish() -> None:
    """Remove all groups from torch.distributed's tables.

    destroy_process_group is not called, because it would wait for peers.
    """
    c10d._update_default_pg(None)
    if not _MODERN:
        c10d._default_pg_init_method = None
        c10d._pg_map.clear()
        c10d._pg_names.clear()
        c10d._pg_group_ranks.clear()
        c10d._group_count = 0
        return
    world = c10d._world
    for table in ("pg_map", "pg_names", "pg_group_ranks", "pg_backend_config", "pg_to_tag", "tags_to_pg",
                  "pg_coalesce_state", "pg_flight_recorder_hooks"):
        if hasattr(world, table):
            getattr(world, table).clear()
    if hasattr(c10d, "_unregister_all_process_groups"):
        c10d._unregister_all_process_groups()
    world.group_count = 0
