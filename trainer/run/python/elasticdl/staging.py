"""A copy of the state in memory, from which a checkpoint is written while the training continues."""

from __future__ import annotations

import ctypes
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional, Tuple

import torch

from .states import _join, _pickled, _split

#: The part of the free memory that a copy may take.
SHARE = 0.9
#: The size of the pieces in which memory is copied, in bytes, and the most threads that copy them.
PIECE, THREADS = 16 << 20, 4

_Spec = Tuple[Tuple[int, ...], torch.dtype, Tuple[int, ...]]


class Staging:
    """The memory for one copy of the state, used again for each checkpoint.

    ``prepare`` makes it ready in a thread, so that the first checkpoint does not wait for new pages.
    """

    def __init__(self) -> None:
        self._buffers: List[torch.Tensor] = []
        self._thread: Optional[threading.Thread] = None

    def prepare(self, values: Dict[str, Any]) -> None:
        """Begin to allocate the memory for a copy of these values, if there is room."""
        tensors: List[torch.Tensor] = []
        _split(values, tensors)
        tensors = _once(tensors)
        if self._buffers or self._thread is not None or not fits(_size(tensors), headroom()):
            return
        # They refer to no tensor of the script: the thread must not keep these.
        like = [(tuple(t.shape), t.dtype, t.stride(), t.is_cuda) for t in tensors if _plain(t)]

        def allocate() -> None:
            for shape, dtype, stride, cuda in like:
                t = torch.empty_strided(shape, stride, dtype=dtype, pin_memory=cuda)
                # It is written once, so that it has its pages.
                ctypes.memset(t.data_ptr(), 0, t.numel() * t.element_size())
                self._buffers.append(t)

        self._thread = threading.Thread(target=allocate, name="elasticdl-staging", daemon=True)
        self._thread.start()

    def ready(self) -> bool:
        """Return whether ``copy`` does not wait for ``prepare``."""
        return self._thread is None or not self._thread.is_alive()

    def wait(self) -> None:
        """Wait for what ``prepare`` has begun."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def copy(self, values: Dict[str, Any]) -> Optional["Copied"]:
        """Return a copy of the values; None if the memory has no room for it.

        A copy is valid until the next one is made.
        """
        self.wait()
        tensors: List[torch.Tensor] = []
        skeleton = _pickled(_split(values, tensors))
        free: Dict[_Spec, List[torch.Tensor]] = {}
        for buffer in self._buffers:
            free.setdefault(_spec(buffer), []).append(buffer)
        known: Dict[Any, torch.Tensor] = {}
        fresh = 0
        for t in _once(tensors):
            mine = free.get(_spec(t)) if _plain(t) else None
            if mine:
                known[_identity(t)] = mine.pop()
            else:
                fresh += t.numel() * t.element_size()
        free.clear()
        self._buffers = []  # those that do not fit are released
        if fresh and not fits(fresh, headroom()):
            return None
        moves: List[Tuple[int, int, int]] = []
        for t in _once(tensors):
            buffer = known.get(_identity(t))
            if not _plain(t):
                known[_identity(t)] = t.clone()
                continue
            if buffer is None:
                buffer = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, pin_memory=t.is_cuda)
            known[_identity(t)] = buffer
            self._buffers.append(buffer)
            if t.is_cuda:
                buffer.copy_(t, non_blocking=True)
            else:
                moves.append((buffer.data_ptr(), t.data_ptr(), t.numel() * t.element_size()))
        _move(moves)
        for device in {t.device for t in tensors if t.is_cuda}:
            torch.cuda.synchronize(device)
        return Copied(skeleton, [known[_identity(t)] for t in tensors])


def _move(moves: List[Tuple[int, int, int]]) -> None:
    """Copy memory: to, from, size. Several threads are faster, and memmove is faster than copy_."""
    pieces = [(to + at, of + at, min(PIECE, size - at)) for to, of, size in moves for at in range(0, size, PIECE)]
    threads = min(THREADS, len(os.sched_getaffinity(0)))
    if threads == 1 or sum(size for _, _, size in pieces) < 2 * PIECE:
        for piece in pieces:
            ctypes.memmove(*piece)
        return
    parts = [pieces[i::threads] for i in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda part: [ctypes.memmove(*piece) for piece in part], parts))


class Copied:
    """A copy of the state. ``values`` may be called in any thread, once."""

    def __init__(self, skeleton: bytes, tensors: List[torch.Tensor]) -> None:
        self._skeleton, self._tensors = skeleton, tensors

    def values(self) -> Dict[str, Any]:
        found: Dict[str, Any] = _join(pickle.loads(self._skeleton), self._tensors)
        return found


def _plain(t: torch.Tensor) -> bool:
    """Return whether the bytes of a tensor, which are in one piece, are all of it."""
    return (
        type(t) in (torch.Tensor, torch.nn.Parameter)
        and t.layout == torch.strided
        and t.device.type in ("cpu", "cuda")
        and not t.is_conj()
        and not t.is_neg()
        and not t.is_quantized
        and (t.is_contiguous() or t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last))
    )


def _spec(t: torch.Tensor) -> _Spec:
    return tuple(t.shape), t.dtype, t.stride()


def _identity(t: torch.Tensor) -> Any:
    """Return a key that is the same for tensors that are the same piece of memory."""
    plain = _plain(t) and t.numel()
    return (t.device, t.data_ptr(), _spec(t)) if plain else id(t)


def _once(tensors: List[torch.Tensor]) -> List[torch.Tensor]:
    return list({_identity(t): t for t in tensors}.values())


def _size(tensors: List[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def fits(size: int, room: Optional[int]) -> bool:
    """Return whether a copy of that size fits the free memory; None: that is not known."""
    return room is None or size <= SHARE * room


def headroom() -> Optional[int]:
    """Return the bytes that this machine and this pod have free, None if that is not known."""
    rooms = [available(_text("/proc/meminfo"))]
    for line in _text("/proc/self/cgroup").splitlines():
        number, kinds, path = (line.split(":", 2) + ["", ""])[:3]
        roots = {"": "/sys/fs/cgroup", "memory": "/sys/fs/cgroup/memory"}
        root = roots.get("memory" if "memory" in kinds.split(",") else kinds)
        # In a pod the path is that of the node, and its directory is the root.
        for directory in (root + path, root) if root is not None else ():
            rooms.append(
                left(
                    _text(directory + "/memory.max") or _text(directory + "/memory.limit_in_bytes"),
                    _text(directory + "/memory.current") or _text(directory + "/memory.usage_in_bytes"),
                    _text(directory + "/memory.stat"),
                )
            )
    known = [room for room in rooms if room is not None]
    return min(known) if known else None


def available(meminfo: str) -> Optional[int]:
    """Return the free memory of a machine by /proc/meminfo."""
    for line in meminfo.splitlines():
        words = line.split()
        if words[:1] == ["MemAvailable:"] and len(words) > 1 and words[1].isdigit():
            return int(words[1]) * 1024
    return None


def left(limit: str, used: str, stat: str) -> Optional[int]:
    """Return the free bytes below the limit of a cgroup; None: it has no limit.

    Pages of files that were read or written can be reclaimed.
    """
    if not limit.strip().isdigit() or not used.strip().isdigit():
        return None
    files = [line.split() for line in stat.splitlines()]
    names = {words[0]: words[1] for words in files if len(words) == 2 and words[1].isdigit()}
    reclaimable = int(names.get("total_inactive_file", names.get("inactive_file", "0")))
    return max(0, int(limit) - int(used) + reclaimable)


def _text(path: str) -> str:
    try:
        with open(path) as f:
            return f.read()
    except OSError:
        return ""
