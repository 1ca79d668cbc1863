"""Makes the process group of one formation so that it can be left again whatever its peers do.

What hangs otherwise: a constructor waits for a peer that died, a collective for one that is silent,
a destructor for both. So the group is constructed in a thread that may be abandoned, its
connections are cut by another thread, and its last references are dropped in a third.

Cutting alone does not end every wait in a collective: when a connection ends gloo tells those whose
message has not begun, and forgets the one whose message is on its way (``Pair::signalException``
leaves out the unbound buffers of ``tx_`` and ``rx_``). It would wait for as long as a collective
may last. So nobody waits in gloo without a look at the cut now and then.

Before 3.14, Python ends a thread that wants its lock while the interpreter ends; inside C++ that
aborts the process. So the interpreter waits before it ends: for the threads in which groups are
made and dropped, of which it stops those that last, and for gloo's own, each of which drops the
tensors of its last collective some time after its waiter has continued. It never destroys the last
group.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
from datetime import timedelta
from typing import Any, Callable, List, NamedTuple, Optional, Set

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from . import cut, nccl

#: How long a constructor may take, when all ranks are ready, and how long a collective:
#: connections are cut, so that the latter costs nothing.
MAKE, TALK = timedelta(seconds=60), timedelta(minutes=30)
#: How long one waits in a collective between two looks at whether the connections are cut.
LOOK = timedelta(milliseconds=100)
#: How long the end of the interpreter waits for threads that are inside gloo. A destructor takes
#: some 0.1 s, 1 s under load.
REST = timedelta(seconds=2)
#: How long it waits for gloo's threads, which need microseconds and a processor.
SETTLE = timedelta(seconds=1)

_MODERN = hasattr(c10d, "_world")  # torch ≥ 2.0: a ProcessGroup has backends


#: Messages of torch and gloo when a peer is lost; errors of the script's own code have other words.
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
    """Is the set of processes that train together, and the rank of this one."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    formation: int = 0
    survivor: bool = False  # it brought state from an earlier world


class Group:
    """Is the process group of one formation.

    ``gloo`` has the collectives of the package's own messages, ``data`` those of the gradients: the
    same object, unless the backend is NCCL.
    """

    def __init__(self, formation: int, rank: int, size: int, members: Set[str], keep: Set[int]) -> None:
        self.formation, self.rank, self.size = formation, rank, size
        self.gloo: Any = None
        self.data: Any = None
        self.nccl = False
        # what is torch.distributed's default group
        self._public: Any = None
        self._store: Any = None
        self._members = members
        self._before = set(cut.sockets()) | keep
        self._own: Optional[Set[int]] = None
        self._condemned = False
        self._cut_once = False
        self._buried = False
        self._lock = threading.Lock()

    def make(self, store: Any, backend: str, tell: Callable[[Optional[Exception]], None]) -> None:
        """Constructs the group in a thread of its own, which calls ``tell`` when it is made or
        cannot be."""

        def construct() -> None:
            try:
                made = _gloo(store, self.rank, self.size)
                data = made
                if backend == "nccl":
                    data = nccl.make(dist.PrefixStore("nccl", store), self.rank, self.size)
                with self._lock:
                    if self._buried:
                        # abandoned: nobody takes it any more, and this thread drops it
                        return
                    self.gloo, self.data, self._store = made, data, store
            except Exception as e:  # of C++: a RuntimeError with gloo's words
                tell(RuntimeError(str(e)))
                return
            tell(None)

        self.nccl = backend == "nccl"
        _go_inside(construct, "elasticdl-group")

    def publish(self) -> None:
        """Makes the group torch.distributed's default group. Main thread only."""
        _watch(self)
        self._public = _publish(self.gloo, self.data, self._store, self.rank, self.size)

    def freeze(self) -> None:
        """Notes which connections are the group's: those that were opened since its construction
        began."""
        self._own = self._candidates()

    def _candidates(self) -> Set[int]:
        tcp = cut.connections()
        mine = (i for i in cut.sockets() if i in tcp and i not in self._before)
        return {i for i in mine if not self._members or cut.local(tcp[i]) or tcp[i] in self._members}

    def connections(self) -> Set[int]:
        """Returns the group's connections: noted ones, and later ones to members (groups that the
        script made)."""
        if self._own is None:
            return self._candidates()
        if self._buried:
            return self._own
        tcp = cut.connections()
        later = {i for i in self._candidates() if not cut.local(tcp.get(i, "127."))}
        return self._own | later

    def condemn(self, doubt: Callable[[str], object]) -> None:
        """Cuts the group's connections, again and again until it is buried: so every wait in it
        ends. ``doubt`` is called, in a thread of its own, if NCCL's group cannot be aborted."""
        with self._lock:
            if self._condemned:
                return
            self._condemned = True
            doomed = [self.data] if self.nccl else []  # it may be buried before the thread runs
        threading.Thread(target=self._cut, args=(doomed, doubt), name="elasticdl-cut", daemon=True).start()

    def _cut(self, doomed: List[Any], doubt: Callable[[str], object]) -> None:
        if doomed:
            try:
                nccl.abort(doomed[0])
            except Exception as e:
                doubt("aborting NCCL's group failed: %s" % e)
            _go_inside(doomed.clear, "elasticdl-grave")  # if it has the last reference
        after = 0  # how often it was cut since it was buried
        while after < 10:
            after += self._buried
            cut.shut(self.connections())
            self._cut_once = True
            time.sleep(0.02)

    def wait(self, work: Any) -> bool:
        """Waits for a collective of gloo's; RuntimeError if it has failed, or has not ended
        although the connections are cut."""
        while True:
            over = self._cut_once
            try:
                return bool(_plain_wait(work, LOOK))
            except RuntimeError:
                if work.is_completed():  # it has failed, or has ended just now
                    return bool(_plain_wait(work))
            if over:
                raise RuntimeError("the world changed, and a collective of gloo's did not end")

    def bury(self) -> None:
        """Drops the group without waiting for it. Main thread only; afterwards the object is of no
        use."""
        grave: List[Any] = []
        if self._public is not None:
            grave.extend(_world_groups())  # the script's own as well
            _unpublish()
        with self._lock:
            self._buried = True
            if self._own is None:
                # what a later group opens is not this one's
                self._own = self._candidates()
            grave += [self._public, self.gloo, self.data, self._store]
            made = self.gloo is not None
            self._public = self.data = self._store = None

        def drop() -> None:
            grave.clear()  # its destructor joins the group's threads

        if made:
            self.gloo = None
            _go_inside(drop, "elasticdl-grave")


_inside: List[threading.Thread] = []  # that are in C++ code, perhaps


def _go_inside(run: Callable[[], None], name: str) -> None:
    """Runs C++ code that may last in a thread of its own."""
    _inside[:] = [t for t in _inside if t.is_alive()]
    t = threading.Thread(target=run, name=name, daemon=True)
    t.start()
    _inside.append(t)


@atexit.register
def _rest() -> None:
    """Keeps the end of the interpreter from destroying the last group, and from meeting a thread
    that comes back from C++."""
    if _watched is not None:
        for kept in (_watched.gloo, _watched.data, *_world_groups()):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))  # its destructor would wait for peers
    end = time.monotonic() + REST.total_seconds()
    for t in _inside:
        t.join(max(0.0, end - time.monotonic()))
    last = [t for t in _inside if t.is_alive()]
    if last:
        libc = ctypes.CDLL(None)
        stop = signal.SIGRTMAX - 1
        # as 3.14 does, which lets such threads wait for ever
        libc.signal(int(stop), ctypes.cast(libc.pause, ctypes.c_void_p))
        for t in last:
            signal.pthread_kill(t.ident or 0, stop)
    if _watched is not None and sys.version_info < (3, 14):
        _settle()


def _settle() -> None:
    """Waits until gloo's threads have dropped what they held: until all threads that are not
    Python's sleep, at three looks in a row."""
    end = time.monotonic() + SETTLE.total_seconds()
    asleep = 0
    while asleep < 3 and time.monotonic() < end:
        # gives Python's lock away: who waits for it can run now
        time.sleep(0.001)
        asleep = (
            asleep + 1 if _all_sleep({t.native_id for t in threading.enumerate()} | {threading.get_native_id()}) else 0
        )


def _all_sleep(pythons: Set[Optional[int]]) -> bool:
    """Reports whether all threads of the process sleep, but for those of Python."""
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
    """Has every wait in torch.distributed, the script's own too, end with the world of this
    group."""
    global _watched
    _watched = group
    setattr(dist.Work, "wait", _wait)


def _wait(work: Any, timeout: timedelta = timedelta(0)) -> bool:
    """Takes the place of ``Work.wait``. Waits with a limit end on their own, and NCCL's are ended
    by its abort.

    A wait does not tell whose it is: with NCCL the package waits for its own collectives of gloo's
    by ``Group.wait``.
    """
    group = _watched
    if group is None or timeout or group.size == 1 or group.nccl:
        return bool(_plain_wait(work, timeout))
    return group.wait(work)


def _gloo(store: Any, rank: int, size: int) -> Any:
    """Returns gloo's group; in 1.13 the timeout of its constructor is that of all its
    operations."""
    prefixed = dist.PrefixStore("gloo", store)
    if not _MODERN:
        return dist.ProcessGroupGloo(prefixed, rank, size, timeout=TALK)
    made = dist.ProcessGroupGloo(prefixed, rank, size, timeout=MAKE)
    if hasattr(made, "_set_default_timeout"):
        made._set_default_timeout(TALK)
    return made


def _publish(gloo: Any, data: Any, store: Any, rank: int, size: int) -> Any:
    """Registers the default group as init_process_group does, without its barrier."""
    _unpublish()
    store = dist.PrefixStore("default", store)
    name = "gloo" if data is gloo else "cpu:gloo,cuda:nccl"
    if not _MODERN:
        c10d._pg_map[gloo] = (name, store)
        c10d._pg_names[gloo] = "0"
        c10d._pg_group_ranks[gloo] = {i: i for i in range(size)}
        c10d._group_count = 1
        c10d._update_default_pg(gloo)
        return gloo
    kinds = dist.ProcessGroup.BackendType
    public = dist.ProcessGroup(store, rank, size)
    public._set_default_backend(kinds.GLOO if data is gloo else kinds.NCCL)
    public._register_backend(torch.device("cpu"), kinds.GLOO, gloo)
    public._register_backend(torch.device("cuda"), kinds.GLOO if data is gloo else kinds.NCCL, data)
    world = c10d._world
    if hasattr(public, "_set_group_name"):
        public._set_group_name("0")
    world.pg_map[public] = (name, store)
    world.pg_names[public] = "0"
    world.pg_group_ranks[public] = {i: i for i in range(size)}
    if hasattr(world, "pg_backend_config"):
        world.pg_backend_config[public] = str(c10d.BackendConfig(c10d.Backend(name)))
    if hasattr(world, "tags_to_pg"):
        world.tags_to_pg.setdefault("", []).append(public)
        world.tags_to_pg.setdefault("ptd:0", []).append(public)
        world.pg_to_tag[public] = "ptd:0"
    if hasattr(c10d, "_register_process_group"):
        c10d._register_process_group("0", public)
    world.group_count = 1
    c10d._update_default_pg(public)
    return public


def _world_groups() -> List[Any]:
    """Returns all groups that are in torch.distributed's tables."""
    return list(c10d._world.pg_map if _MODERN else c10d._pg_map)


def _unpublish() -> None:
    """Removes all groups from torch.distributed's tables; destroy_process_group would wait for
    peers."""
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
