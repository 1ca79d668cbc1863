"""Hands record indices to a DataLoader's workers in blocks of one batch, so that the k-th batch is
known record by record.

ElasticDL counts *how many* records were trained on; with several loader workers it cannot know
which. Here a loader worker connects to the training process and is given a block of ``batch_size``
indices at a time, from leases of its own. A DataLoader delivers batch k from worker k mod W, so the
k-th batch is the next block of that worker.

Blocks are made ahead of the training, and the state with its ledger may change under them. Four
rules keep every record in exactly one update, whatever the ledger becomes:

1. A block counts if each of its stretches begins where the ledger, with the stretches of this
   round, ends. Otherwise it counts nothing.
2. A block that does not count leaves no record taken. If the state lacks records of a lease in the
   block, the lease takes them again from the ledger's end on, in a new *turn*.
3. A stretch of an earlier turn counts nothing and does not move its lease: its records were taken
   again.
4. The records of one turn are taken by one worker, so that they are delivered in order.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from elasticdl import session as sessions
from elasticdl.leases import Stretch
from elasticdl.rounds import STRETCHES, Credit, Ledger

#: How long a worker without records rests before it is given a block that counts nothing, in
#: seconds.
REST = 0.02


class Block(NamedTuple):
    """Is the records of one batch. Its stretches have fewer records than indices if it is filled up
    with records that are credited elsewhere."""

    indices: List[int]
    stretches: Tuple[Stretch, ...]


def early(session: Any) -> bool:
    """Reports whether the state of this world, with its ledger, is still to come."""
    return session.link is not None and not session.synced


def ledger(session: Any) -> Ledger:
    """Returns the ledger at which leases begin: a process without state has none, whatever it has
    read from a checkpoint."""
    return session.ledger if session.live or not early(session) else {}


def admit(blocks: Sequence[Optional[Block]], tasks: int = STRETCHES) -> List[Tuple[Credit, ...]]:
    """Returns the credits of each block of a round: for all its records, or for none. Leases take
    dropped records again.

    Call it once the state is that of this world. ``tasks`` limits the tasks in the round's header.
    """
    session = sessions.current()
    ends: Ledger = {}
    for c in session.pending:
        ends[c.epoch, c.number] = c.last
    return [_admit(session, ends, tasks, block) if block is not None else () for block in blocks]


def _admit(session: Any, ends: Ledger, tasks: int, block: Block) -> Tuple[Credit, ...]:
    """Returns the credits of a block, and moves ``ends``, where the stretches of this round's
    tasks end."""
    held = set(map(id, session.book.held))
    after = dict(ends)
    fits = True
    for lease, turn, c in block.stretches:
        key = c.epoch, c.number
        end = after.get(key, session.ledger.get(key, 0))
        # Stretches of an open header are not in the ledger yet.
        follows = c.first == end or c.first > end and bool(session.headers)
        fits = fits and follows and id(lease) in held and turn == lease.turn and c.epoch >= session.settled
        after[key] = c.last
    if fits and len(after) <= tasks:
        ends.update(after)
        return tuple(s.credit for s in block.stretches)
    for lease, turn, c in block.stretches:
        end = ends.get((c.epoch, c.number), session.ledger.get((c.epoch, c.number), 0))
        if c.last > end and c.epoch >= session.settled:
            lease.back(turn, end)
    return ()


class Blocks:
    """Makes blocks from leases, in the training process. Each loader worker has leases of its
    own."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.workers = 0
        self._lock = threading.RLock()
        self._given: Dict[int, Deque[Block]] = {}
        self._next = 0
        # how many DataLoaders' iterations have begun
        self._loader = 0
        self._seen: Set[int] = set()  # the workers of the newest
        # abstract: it is in no file system, and ends with the process
        self.path = "\0elasticai-%d-%s" % (os.getpid(), os.urandom(8).hex())
        self._listener: Optional[socket.socket] = None

    def serve(self) -> None:
        """Listens for the loader's workers."""
        with self._lock:
            if self._listener is None:
                self._listener = socket.socket(socket.AF_UNIX)
                self._listener.bind(self.path)
                self._listener.listen(128)
                threading.Thread(target=self._accept, name="elasticai-blocks", daemon=True).start()

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            c, _ = self._listener.accept()
            _, user, _ = struct.unpack("3i", c.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if user != os.geteuid():  # an abstract socket has no permissions
                c.close()
                continue
            threading.Thread(target=self._answer, args=(c,), daemon=True).start()

    def _answer(self, c: socket.socket) -> None:
        loader = None
        try:
            while True:
                worker, workers = struct.unpack("<ii", _exactly(c, 8))
                if loader is None:
                    loader = self._begin(worker, workers)
                block = self.make(worker, loader)
                body = json.dumps(block.indices if block else []).encode()
                c.sendall(struct.pack("<i", len(body)) + body)
        except (OSError, EOFError):
            c.close()

    def _begin(self, worker: int, workers: int) -> int:
        """Returns the number of the loader that a worker, which has just connected, is of.

        A known worker has restarted. Undelivered records of the former one are taken again.
        """
        with self._lock:
            if worker in self._seen or workers != self.workers:
                self._loader, self._next, self.workers = self._loader + 1, 0, workers
                self._seen.clear()
                self._given.clear()
                for lease in list(sessions.current().book.held):
                    lease.back(lease.turn, lease.credited)
            self._seen.add(worker)
            return self._loader

    def make(self, worker: int, loader: Optional[int] = None) -> Optional[Block]:
        """Makes the next block of a worker, None at the end, or if the loader is not the newest.

        While others have the remaining records it repeats some, without credits.
        """
        session = sessions.current()
        with self._lock:
            if loader not in (None, self._loader):
                return None
            book = session.book
            indices: List[int] = []
            stretches: List[Stretch] = []
            while len(indices) < self.batch_size and len(stretches) < STRETCHES:
                lease = next((h for h in book.held if h.taken < len(h) and h.owner in (None, worker)), None)
                lease = lease or book.ask(session.pending, ledger(session), early(session))
                if lease is None:
                    break
                more, stretch = lease.claim(self.batch_size - len(indices), worker)
                indices += more
                stretches.append(stretch)
            if not indices and book.ended:
                return None
            filler = indices or list(range(min(self.batch_size, book.data.size)))
            block = Block([filler[i % len(filler)] for i in range(self.batch_size)], tuple(stretches))
            self._given.setdefault(worker, deque()).append(block)
        if not indices:
            time.sleep(REST)
        return block

    def next(self) -> Optional[Block]:
        """Returns the block of the batch that the loader delivers next; None if it delivered none
        that was made here."""
        with self._lock:
            worker = self._next % self.workers if self.workers else 0
            given = self._given.get(worker)
            if not given:
                return None
            self._next += 1
            return given.popleft()


def _exactly(c: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        more = c.recv(n - len(data))
        if not more:
            raise EOFError
        data += more
    return data


class Client:
    """Asks the training process for blocks, from a process of the loader. Each process has a
    connection of its own."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._pid = 0
        self._socket: Any = None

    def ask(self, worker: int, workers: int) -> List[int]:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(self.path)
        self._socket.sendall(struct.pack("<ii", worker, workers))
        size, = struct.unpack("<i", _exactly(self._socket, 4))
        return list(json.loads(_exactly(self._socket, size)))
