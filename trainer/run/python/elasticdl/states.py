"""The state that all ranks share, copied from the rank that has the newest."""

from __future__ import annotations

import ctypes
import hashlib
import io
import pickle
import zlib
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

import torch

from .doubt import Error
from .replicas import put_together, state_row, taken_apart
from .session import Session, current

#: Tensors are sent in chunks of this size.
CHUNK_BYTES = 16 << 20
#: The tag of messages with state.
TAG = 0x57A7E


class _Place(NamedTuple):
    """A placeholder for a tensor, in a structure that is pickled without its tensors."""

    number: int
    shape: Tuple[int, ...]
    dtype: torch.dtype


def _split(value: Any, tensors: List[torch.Tensor]) -> Any:
    """Return the structure with placeholders for its tensors; append these to ``tensors``."""
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return _Place(len(tensors) - 1, tuple(value.shape), value.dtype)
    # Subclasses are pickled whole, because they may have more attributes.
    if type(value) in (dict, OrderedDict):
        return _alike(value, type(value)((k, _split(v, tensors)) for k, v in value.items()))
    if type(value) in (list, tuple):
        return type(value)(_split(v, tensors) for v in value)
    return value


def _join(value: Any, tensors: Any) -> Any:
    if isinstance(value, _Place):
        return tensors[value.number]
    if type(value) in (dict, OrderedDict):
        return _alike(value, type(value)((k, _join(v, tensors)) for k, v in value.items()))
    if type(value) in (list, tuple):
        return type(value)(_join(v, tensors) for v in value)
    return value


def _alike(value: Any, made: Any) -> Any:
    """Return a copy of a dictionary with the versions that a state_dict() has of its modules."""
    if hasattr(value, "_metadata"):
        made._metadata = value._metadata
    return made


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


#: The parts of a member that a rank sends: its structure, None if it is the same on all ranks, and
#: the tensors that differ.
_Part = Tuple[Any, List[_Place]]


class _Pieces:
    """A state in pieces that ranks compare: for each member its structure, then its tensors."""

    def __init__(self, values: Dict[str, Any]) -> None:
        self.members: Dict[str, Tuple[Any, List[torch.Tensor]]] = {}
        for name, value in values.items():
            tensors: List[torch.Tensor] = []
            self.members[name] = (_split(value, tensors), tensors)

    def __len__(self) -> int:
        return sum(1 + len(tensors) for _, tensors in self.members.values())

    def digests(self) -> List[int]:
        found = []
        for name, (skeleton, tensors) in self.members.items():
            found.append(_digest(name, skeleton))
            found += [_checksum(t) for t in tensors]
        return found

    def parts(self, differs: List[bool]) -> Dict[str, _Part]:
        """Return the parts to send, from the pieces that differ between ranks."""
        parts: Dict[str, _Part] = {}
        at = 0
        for name, (skeleton, tensors) in self.members.items():
            whole, places = differs[at], _places(skeleton, [])
            chosen = sorted(p for p in places if whole or differs[at + 1 + p.number])
            if whole or chosen:
                parts[name] = (skeleton if whole else None, chosen)
            at += 1 + len(tensors)
        return parts

    def tensors(self, parts: Dict[str, _Part]) -> List[torch.Tensor]:
        return [self.members[name][1][p.number] for name, (_, places) in parts.items() for p in places]

    def all_tensors(self) -> List[torch.Tensor]:
        return [t for _, tensors in self.members.values() for t in tensors]

    def room(self, name: str, skeleton: Any) -> List[torch.Tensor]:
        """Return tensors for a member that is received: this object's, if it has the same structure."""
        here, own = self.members.get(name, (None, []))
        if own and _alike_on_host(own) and _digest(name, here) == _digest(name, skeleton):
            return list(own)
        return [torch.empty(p.shape, dtype=p.dtype) for p in sorted(_places(skeleton, []))]

    def join(self, parts: Dict[str, _Part], received: Iterable[torch.Tensor]) -> Dict[str, Any]:
        """Return the members that have parts, with this object's pieces where they have none."""
        tensors = iter(received)
        values = {}
        for name, (skeleton, places) in parts.items():
            here, own = self.members.get(name, (None, []))
            all_of_them = dict(enumerate(own))
            all_of_them.update((p.number, next(tensors)) for p in places)
            values[name] = _join(here if skeleton is None else skeleton, all_of_them)
        return values


def _digest(name: str, skeleton: Any) -> int:
    h = hashlib.blake2b(name.encode(), digest_size=7)
    _feed(h, skeleton)
    return int.from_bytes(h.digest(), "big")


def _alike_on_host(tensors: List[torch.Tensor]) -> bool:
    """Return whether tensors are plain ones in the host's memory, into which bytes can be received."""
    return all(type(t) is torch.Tensor and t.device.type == "cpu" and t.is_contiguous() for t in tensors)


def _feed(h: Any, value: Any) -> None:
    """Feed a structure to a hash. Equal structures have equal digests in all processes.

    That holds for the types in the result of a state_dict(). Others are pickled.
    """
    kind = type(value)
    if kind in (dict, OrderedDict):
        h.update(b"%s %d;" % (kind.__name__.encode(), len(value)))
        for k, v in value.items():
            _feed(h, k)
            _feed(h, v)
    elif kind in (list, tuple):
        h.update(b"%s %d;" % (kind.__name__.encode(), len(value)))
        for v in value:
            _feed(h, v)
    else:
        plain = value is None or kind in (bool, int, float, complex, str, bytes, _Place)
        body = repr(value).encode() if plain else _pickled(value)
        h.update(b"%s %d;" % (kind.__name__.encode(), len(body)))
        h.update(body)


def _checksum(t: torch.Tensor) -> int:
    """Return the CRC-32 of a tensor, in about 25 ms for 100 MB.

    Two different tensors have the same checksum in one of four billion cases.
    """
    t = t.detach().cpu().contiguous()
    size = t.numel() * t.element_size()
    return zlib.crc32((ctypes.c_char * size).from_address(t.data_ptr())) if size else 0


class State:
    """The named parts of the state of the training.

    Objects that have ``state_dict`` and ``load_state_dict`` (models, optimizers, schedulers,
    gradient scalers) are copied through them, everything else by value: ``State(model=model,
    optimizer=optimizer, epoch=0)``, then ``state.epoch += 1``. Raise Error for a name that State
    uses itself, and when a name is assigned that was not given.
    """

    def __init__(self, **members: Any) -> None:
        taken = [name for name in members if hasattr(type(self), name)]
        if taken:
            raise Error("State has a method of the name %r: choose another name" % taken[0])
        self.__dict__.update(members)
        self.__dict__["_names"] = list(members)
        self.__dict__["_torn"] = False  # a part of another state was received into the members

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dict__:
            raise Error("State has no %r: name it when you make it, State(%s=…)" % (name, name))
        self.__dict__[name] = value

    def collect(self) -> Dict[str, Any]:
        """Return the state by name: a dictionary of state_dicts, tensors and values."""
        return {name: m.state_dict() if hasattr(m, "load_state_dict") else m for name, m in self._members()}

    def load(self, values: Dict[str, Any]) -> None:
        """Load what :meth:`collect` returned, here or in another process.

        Raise Error if the names differ.
        """
        if set(values) != set(self.__dict__["_names"]):
            raise Error(
                "the state to take over has %s, and this State %s" % (sorted(values), sorted(self.__dict__["_names"]))
            )
        self._take(values)

    def _take(self, values: Dict[str, Any]) -> None:
        for name, m in self._members():
            if name not in values:
                continue
            if hasattr(m, "load_state_dict"):
                m.load_state_dict(values[name])
            else:
                self.__dict__[name] = values[name]

    def _members(self) -> List[Tuple[str, Any]]:
        return [(name, self.__dict__[name]) for name in self.__dict__["_names"]]

    def sync(self) -> None:
        """Copy the state of the rank that has the newest. A newcomer joins the others before.

        Between ranks that have ended the same round, only differences are copied: what changed
        after :func:`step`. Each of the others gets the rest from one of these, without the others.
        Raise WorldChanged if a rank is lost.
        """
        session = current()
        session.join()
        try:
            self._sync(session)
        except RuntimeError as e:
            if session.group.size == 1 or isinstance(e, Error):
                raise
            session.lost(e)
        for name, m in self._members():
            if hasattr(m, "zero_grad"):
                m.zero_grad(set_to_none=True)
        session.updates.watch(m for _, m in self._members())
        session.live, session.half, session.synced = True, False, True
        session.loaded = None
        session.settle(session.complete)
        session.fit()
        session.book.rewind(session.ledger)

    def _sync(self, session: Session) -> None:
        if session.sharded:
            self._sync_shards(session)
            return
        group: Any = session.group
        source = max(session.source, 0)
        replica, mesh = session.replica, None
        if replica is not None:
            group, source = replica.across(session, _gather(group, state_row(session)))
            mesh = replica.mesh()
            if group.rank == source and session.live:
                replica.equal(session, self)
        lost = session.source < 0 and session.loaded is None and not session.live
        if self.__dict__["_torn"] and lost and group.rank == source:
            session.doubt("it received a part of a state only, and no process has that state any more")
        if session.loaded is not None and not session.live and group.rank == source:
            if replica is None:
                self.load(session.loaded())
            else:
                session.read_shards(self, session.commit_name)
        if group.size == 1:
            return
        alike = session.live and not session.half and session.source >= 0
        pieces = _Pieces(taken_apart(self.collect(), mesh) if alike or group.rank == source else {})
        rows = _gather(group, [session.round if alike else -1, len(pieces)])
        have, lack = _holders(rows, source)
        differs = [True] * rows[source][1]
        if have:
            # A newcomer gets all of it from one rank, while the others see what differs among them.
            if torch.cuda.is_initialized():
                torch.cuda.current_stream().synchronize()  # the thread has another stream
            with ThreadPoolExecutor(1) as thread:
                digests = thread.submit(pieces.digests) if group.rank in have else None
                if group.rank in lack:
                    pieces = self._receive(session, group, have[lack.index(group.rank)], mesh is None)
                elif group.rank in have[:len(lack)]:
                    _give(session, group, lack[have.index(group.rank)], pieces)
                table = _gather(group, digests.result() if digests else [0] * len(differs))
            differs = [len(set(column)) > 1 for column in zip(*(table[r] for r in have))]
        body = b""
        if group.rank == source:
            body = _pickled((session.round, session.known, pieces.parts(differs)))
        newest, known, parts = pickle.loads(_spread_bytes(group, source, body))
        tensors = pieces.tensors(parts) if group.rank == source else _room(parts)
        _spread(group, source, tensors)
        session.group.agree()  # all of this worker take this state, or none does
        if have and group.rank in lack:
            parts = {name: parts.get(name, (None, [])) for name in pieces.members}  # all that it received
        if group.rank != source:
            values = put_together(pieces.join(parts, tensors), mesh)
            if group.rank in have and set(values) <= set(self.__dict__["_names"]):
                self._take(values)
            else:
                self.load(values)
        # Not before: if the source is lost meanwhile, this rank has what it had.
        session.round, session.known = newest, known
        self.__dict__["_torn"] = False

    def _receive(self, session: Session, group: Any, source: int, plain: bool) -> _Pieces:
        """Receive the whole state from one rank, if possible into the tensors of the members.

        That saves the memory, and the time of a copy. If the source is lost meanwhile, these
        tensors are of no state: see _sync. ``plain``: the members are not parts of a replica.
        """
        pieces, own = _Pieces({}), _Pieces({})
        skeletons = pickle.loads(_hand_bytes(session, group, source, group.rank, b""))
        if plain and not session.live:
            own = _Pieces({n: m.state_dict() for n, m in self._members() if isinstance(m, torch.nn.Module)})
            self.__dict__["_torn"] = True
        used = set()
        for name, skeleton in skeletons.items():
            room = own.room(name, skeleton)
            for i, t in enumerate(room):
                # Two names of one tensor on this rank may be two tensors on the other.
                if t.numel() and t.data_ptr() in used:
                    room[i] = torch.empty_like(t)
                used.add(t.data_ptr())
            pieces.members[name] = (skeleton, room)
        _hand(group, source, group.rank, pieces.all_tensors(), session.group.wait_message)
        return pieces

    def _sync_shards(self, session: Session) -> None:
        """Read the commit of the rank that has the newest one, each rank its own part."""
        group, source = session.group, max(session.source, 0)
        body = b""
        if group.rank == source:
            body = _pickled((session.round, session.known, session.commit_name))
        if group.size > 1:
            body = _spread_bytes(group, source, body)
        newest, known, name = pickle.loads(body)
        if name:
            session.read_shards(self, name)
        session.round, session.known = newest, known


def _gather(group: Any, row: List[int]) -> List[List[int]]:
    """Gather a row of numbers from each rank. The rows must have the same length."""
    if group.size == 1:
        return [row]
    mine = torch.tensor(row, dtype=torch.int64)
    table = torch.empty(group.size, len(row), dtype=torch.int64)
    group.wait(group.gloo.allgather([list(table.unbind(0))], [mine]))
    return [list(map(int, row)) for row in table.tolist()]


def _gather_bytes(group: Any, body: bytes) -> List[bytes]:
    """Gather bytes from each rank."""
    if group.size == 1:
        return [body]
    sizes = [row[0] for row in _gather(group, [len(body)])]
    mine = torch.frombuffer(bytearray(body.ljust(max(sizes), b"\0")), dtype=torch.uint8)
    table = torch.empty(group.size, max(sizes), dtype=torch.uint8)
    group.wait(group.gloo.allgather([list(table.unbind(0))], [mine]))
    return [ctypes.string_at(row.data_ptr(), n) for row, n in zip(table, sizes)]


def _pickled(value: Any) -> bytes:
    out = io.BytesIO()
    pickle.dump(value, out, protocol=4)
    return out.getvalue()


def _spread_bytes(group: Any, source: int, body: bytes) -> bytes:
    """Send bytes from the source to all ranks, and return them."""
    length = torch.tensor([len(body)], dtype=torch.int64)
    _broadcast(group, source, length)
    data = torch.frombuffer(bytearray(body), dtype=torch.uint8) if body else torch.empty(int(length), dtype=torch.uint8)
    _broadcast(group, source, data)
    return ctypes.string_at(data.data_ptr(), data.numel())


def _holders(rows: List[List[int]], source: int) -> Tuple[List[int], List[int]]:
    """Return the ranks that have the source's round, and those that get the state from one of them.

    None, if the source has no state that others may have, or if there are fewer of the first: then
    the source sends all of it to all.
    """
    have = [r for r, row in enumerate(rows) if row == rows[source] and row[0] >= 0]
    lack = [r for r in range(len(rows)) if r not in have]
    return (have, lack) if len(lack) <= len(have) else ([], [])


def _room(parts: Dict[str, _Part]) -> List[torch.Tensor]:
    return [torch.empty(p.shape, dtype=p.dtype) for _, places in parts.values() for p in places]


def _spread(group: Any, source: int, tensors: List[torch.Tensor]) -> None:
    """Send tensors from the source to all ranks. On the other ranks they are overwritten."""
    _in_chunks(tensors, group.rank == source, lambda t: _broadcast(group, source, t))


def _hand(group: Any, source: int, to: int, tensors: List[torch.Tensor], wait: Callable[[Any], bool]) -> None:
    """Send tensors from one rank to one other, where they are overwritten. Both call this."""
    if group.rank == source:
        _in_chunks(tensors, True, lambda t: wait(group.gloo.send([t], to, TAG)))
    else:
        _in_chunks(tensors, False, lambda t: wait(group.gloo.recv([t], source, TAG)))


def _give(session: Session, group: Any, to: int, pieces: _Pieces) -> None:
    """Send a whole state to one rank, which calls State._receive."""
    skeletons = {name: skeleton for name, (skeleton, _) in pieces.members.items()}
    _hand_bytes(session, group, group.rank, to, _pickled(skeletons))
    _hand(group, group.rank, to, pieces.all_tensors(), session.group.wait_message)


def _hand_bytes(session: Session, group: Any, source: int, to: int, body: bytes) -> bytes:
    """Send bytes from one rank to one other, and return them. Both call this."""
    length = torch.tensor([len(body)], dtype=torch.int64)
    _hand(group, source, to, [length], session.group.wait_message)
    data = torch.frombuffer(bytearray(body), dtype=torch.uint8) if body else torch.empty(int(length), dtype=torch.uint8)
    _hand(group, source, to, [data], session.group.wait_message)
    return ctypes.string_at(data.data_ptr(), data.numel())


def _in_chunks(tensors: List[torch.Tensor], sends: bool, move: Callable[[torch.Tensor], object]) -> None:
    """Move tensors in chunks through the host's memory."""
    chunk: List[torch.Tensor] = []
    size = 0
    ended: List[Optional[torch.Tensor]] = [*tensors, None]
    for t in ended:
        if t is None or size + t.numel() * t.element_size() > CHUNK_BYTES:
            _move(chunk, size, sends, move)
            chunk, size = [], 0
        if t is not None and t.numel():
            chunk.append(t)
            size += t.numel() * t.element_size()


def _move(chunk: List[torch.Tensor], size: int, sends: bool, move: Callable[[torch.Tensor], object]) -> None:
    if not chunk:
        return
    if len(chunk) == 1 and chunk[0].is_contiguous() and chunk[0].device.type == "cpu":
        move(chunk[0].reshape(-1).view(torch.uint8))  # in place
        return
    if sends:
        move(torch.cat([t.cpu().contiguous().reshape(-1).view(torch.uint8) for t in chunk]))
        return
    buffer = torch.empty(size, dtype=torch.uint8)
    move(buffer)
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
