"""Keeps the state that all ranks must share, and copies it from the rank that has the newest."""

from __future__ import annotations

import ctypes
import io
import pickle
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Tuple

import torch

from .doubt import Error
from .session import Session, current

#: Tensors travel in chunks of this size.
CHUNK_BYTES = 16 << 20


class _Place(NamedTuple):
    """Stands for a tensor in a structure that is pickled without its tensors."""

    number: int
    shape: Tuple[int, ...]
    dtype: torch.dtype


def _split(value: Any, tensors: List[torch.Tensor]) -> Any:
    """Returns the structure with places for its tensors, which are appended to ``tensors``."""
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return _Place(len(tensors) - 1, tuple(value.shape), value.dtype)
    if type(value) in (dict, OrderedDict):  # others are pickled whole: they may have more to them
        return type(value)((k, _split(v, tensors)) for k, v in value.items())
    if type(value) in (list, tuple):
        return type(value)(_split(v, tensors) for v in value)
    return value


def _join(value: Any, tensors: List[torch.Tensor]) -> Any:
    if isinstance(value, _Place):
        return tensors[value.number]
    if type(value) in (dict, OrderedDict):
        return type(value)((k, _join(v, tensors)) for k, v in value.items())
    if type(value) in (list, tuple):
        return type(value)(_join(v, tensors) for v in value)
    return value


def _places(value: Any, found: List[_Place]) -> List[_Place]:
    if isinstance(value, _Place):
        found.append(value)
    elif type(value) in (dict, OrderedDict):
        for v in value.values():
            _places(v, found)
    elif type(value) in (list, tuple):
        for v in value:
            _places(v, found)
    return found


class State:
    """Names what makes up the state of the training.

    Objects that have ``state_dict`` and ``load_state_dict`` (models, optimizers, schedulers, gradient scalers) are
    taken by them, everything else by value: ``State(model=model, optimizer=optimizer, epoch=0)``, then ``state.epoch += 1``.
    """

    def __init__(self, **members: Any) -> None:
        taken = [name for name in members if hasattr(type(self), name)]
        if taken:
            raise Error("State has a method of the name %r: choose another name" % taken[0])
        self.__dict__.update(members)
        self.__dict__["_names"] = list(members)

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dict__:
            raise Error("State has no %r: name it when you make it, State(%s=…)" % (name, name))
        self.__dict__[name] = value

    def collect(self) -> Dict[str, Any]:
        """Returns the state as dictionaries, tensors and values."""
        return {name: m.state_dict() if hasattr(m, "load_state_dict") else m for name, m in self._members()}

    def load(self, values: Dict[str, Any]) -> None:
        """Takes over what :meth:`collect` returned, here or elsewhere."""
        if set(values) != set(self.__dict__["_names"]):
            raise Error("the state to take over has %s, and this State %s" % (sorted(values), sorted(self.__dict__["_names"])))
        for name, m in self._members():
            if hasattr(m, "load_state_dict"):
                m.load_state_dict(values[name])
            else:
                self.__dict__[name] = values[name]

    def _members(self) -> List[Tuple[str, Any]]:
        return [(name, self.__dict__[name]) for name in self.__dict__["_names"]]

    def sync(self) -> None:
        """Copies the state of the newest rank. Ranks that have the same model already copy only the values."""
        session = current()
        session.check_ready()
        try:
            self._sync(session)
        except RuntimeError as e:
            if session.group.size == 1 or isinstance(e, Error):
                raise
            session.lost(e)
        for name, m in self._members():
            if hasattr(m, "zero_grad"):
                m.zero_grad(set_to_none=True)
        session.live, session.half, session.synced = True, False, True
        session.loaded = None
        session.book.rewind(session.ledger)

    def _sync(self, session: Session) -> None:
        group = session.group
        source = max(session.source, 0)
        if session.loaded is not None and not session.live and group.rank == source:
            self.load(session.loaded())
        if group.size == 1:
            return
        alike = session.live and not session.half and session.source >= 0
        mine = torch.tensor([session.round if alike else -1], dtype=torch.int64)
        table = torch.empty(group.size, 1, dtype=torch.int64)
        group.wait(group.gloo.allgather([list(table.unbind(0))], [mine]))
        same = len(set(table.reshape(-1).tolist())) == 1 and int(table[0]) >= 0
        tensors: List[torch.Tensor] = []
        body = b""
        if group.rank == source:
            body = _pickled((session.round, session.settled, session.ledger, _split(self._values() if same else self.collect(), tensors)))
        body = _spread_bytes(group, source, body)
        newest, settled, ledger, skeleton = pickle.loads(body)
        if group.rank != source:
            places = sorted(_places(skeleton, []))
            tensors = [torch.empty(p.shape, dtype=p.dtype) for p in places]
        _spread(group, source, tensors)
        if group.rank != source:
            values = _join(skeleton, tensors)
            if same:
                self.__dict__.update(values)
            else:
                self.load(values)
        # Not before: if the source is lost meanwhile, this rank has what it had.
        session.round, session.ledger, session.settled = newest, ledger, max(settled, session.settled)

    def _values(self) -> Dict[str, Any]:
        return {name: m for name, m in self._members() if not hasattr(m, "load_state_dict")}


def _pickled(value: Any) -> bytes:
    out = io.BytesIO()
    pickle.dump(value, out, protocol=4)
    return out.getvalue()


def _spread_bytes(group: Any, source: int, body: bytes) -> bytes:
    """Sends bytes from the source to all ranks."""
    length = torch.tensor([len(body)], dtype=torch.int64)
    _broadcast(group, source, length)
    data = torch.frombuffer(bytearray(body), dtype=torch.uint8) if body else torch.empty(int(length), dtype=torch.uint8)
    _broadcast(group, source, data)
    return ctypes.string_at(data.data_ptr(), data.numel())


def _spread(group: Any, source: int, tensors: List[torch.Tensor]) -> None:
    """Sends tensors from the source to all ranks, through chunks in the host's memory."""
    chunk: List[torch.Tensor] = []
    size = 0
    ended: List[Optional[torch.Tensor]] = [*tensors, None]
    for t in ended:
        if t is None or size + t.numel() * t.element_size() > CHUNK_BYTES:
            _send(group, source, chunk, size)
            chunk, size = [], 0
        if t is not None and t.numel():
            chunk.append(t)
            size += t.numel() * t.element_size()


def _send(group: Any, source: int, chunk: List[torch.Tensor], size: int) -> None:
    if not chunk:
        return
    if len(chunk) == 1 and chunk[0].is_contiguous() and chunk[0].device.type == "cpu":
        _broadcast(group, source, chunk[0].reshape(-1).view(torch.uint8))  # in place
        return
    if group.rank == source:
        buffer = torch.cat([t.cpu().contiguous().reshape(-1).view(torch.uint8) for t in chunk])
        _broadcast(group, source, buffer)
        return
    buffer = torch.empty(size, dtype=torch.uint8)
    _broadcast(group, source, buffer)
    at = 0
    for t in chunk:
        n = t.numel() * t.element_size()
        t.reshape(-1).view(torch.uint8).copy_(buffer[at:at + n])
        at += n


def _broadcast(group: Any, source: int, t: torch.Tensor) -> None:
    options = torch.distributed.BroadcastOptions() if hasattr(torch.distributed, "BroadcastOptions") else None
    if options is None:
        group.wait(group.gloo.broadcast(t, source))
        return
    options.rootRank, options.rootTensor = source, 0
    group.wait(group.gloo.broadcast([t], options))
