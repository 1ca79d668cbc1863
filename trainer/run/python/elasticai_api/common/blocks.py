"""Blocks of record indices for the workers of a DataLoader: one block for each batch.

ElasticDL counts *how many* records were trained on. With several loader workers it cannot know
*which* ones. Here the records of each batch are known. A loader worker connects to the training
process and receives blocks of ``batch_size`` indices, from leases of its own. A DataLoader delivers
batch k from worker k mod W, so the records of batch k are the next block of that worker.

Blocks are made ahead of the training, and the state with its ledger may change before a block is
trained on. Four rules keep every record in exactly one update of its epoch, whatever the ledger
becomes:

1. A block is credited whole or not at all. It is credited if each of its ranges begins where the
   ledger ends, with the credits of this round included.
2. If a block is not credited and the state lacks records of a lease in the block, that lease takes
   them again from the end of the ledger, in a new *turn*.
3. A range of an earlier turn is not credited and does not change its lease: its records are taken
   again already.
4. One worker takes all records of a turn, so that they are delivered in order.
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
from elasticdl.leases import Range
from elasticdl.rounds import RANGES, Credit, Ledger

#: Time before a worker gets a block without records of its own, in seconds.
REST = 0.02


class Block(NamedTuple):
    """The records of one batch.

    ``indices`` holds ``batch_size`` indices; it is empty if the script takes indices from shards.
    ``ranges`` covers fewer records if the batch is filled up with records that are credited
    elsewhere.
    """

    indices: List[int]
    ranges: Tuple[Range, ...]


def early(session: Any) -> bool:
    """Return whether the state of this world, with its ledger, has still to be received."""
    return session.link is not None and not session.synced


def ledger(session: Any) -> Ledger:
    """Return the ledger at which new leases begin: empty until the process has state in memory.

    A ledger that was only read from a checkpoint does not count before that.
    """
    return session.ledger if session.live or not early(session) else {}


def admit(blocks: Sequence[Optional[Block]], tasks: int = RANGES) -> List[Tuple[Credit, ...]]:
    """Return the credits of each block of a round: for all records of the block, or for none.

    A block None has no credits. Leases take the records of a block that is not credited again. Call
    the function once the state is that of this world. ``tasks`` is the maximum number of tasks with
    credits in the round.
    """
    session = sessions.current()
    ends: Ledger = {}
    for c in session.pending:
        ends[c.epoch, c.number] = c.last
    return [_admit(session, ends, tasks, block) if block is not None else () for block in blocks]


def _admit(session: Any, ends: Ledger, tasks: int, block: Block) -> Tuple[Credit, ...]:
    """Return the credits of a block, and update ``ends``, where the credits of each task end."""
    held = set(map(id, session.book.held))
    after = dict(ends)
    fits = True
    for lease, turn, c in block.ranges:
        key = c.epoch, c.number
        end = after.get(key, session.ledger.get(key, 0))
        # Ranges of an open header are not in the ledger yet.
        follows = c.first == end or c.first > end and bool(session.headers)
        fits = fits and follows and id(lease) in held and turn == lease.turn and c.epoch >= session.settled
        after[key] = c.last
    if fits and len(after) <= tasks:
        ends.update(after)
        return tuple(s.credit for s in block.ranges)
    for lease, turn, c in block.ranges:
        end = ends.get((c.epoch, c.number), session.ledger.get((c.epoch, c.number), 0))
        if c.last > end and c.epoch >= session.settled:
            lease.back(turn, end)
    return ()


class Blocks:
    """The blocks that the training process makes from leases.

    Each loader worker has leases of its own. All methods may be called from any thread.
    """

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.workers = 0
        self._lock = threading.RLock()
        self._given: Dict[int, Deque[Block]] = {}
        self._next = 0
        # number of the newest DataLoader iteration
        self._loader = 0
        self._seen: Set[int] = set()  # workers of that iteration
        # An abstract address: it is in no file system, and ends with the process.
        self.path = "\0elasticai-%d-%s" % (os.getpid(), os.urandom(8).hex())
        self._listener: Optional[socket.socket] = None

    def serve(self) -> None:
        """Start to listen for loader workers, unless it was started before."""
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
        """Return the number of the loader to which a newly connected worker belongs.

        A worker that is known already belongs to a new loader, and so does one that reports another
        number of workers. Leases take the undelivered records of the former loader again.
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
        """Make the next block of a worker; return None at the end, or for an older loader.

        A block with too few records repeats some of them. While other processes have the remaining
        records, it repeats the first of the data set. Repeated records have no credits.
        """
        session = sessions.current()
        with self._lock:
            if loader not in (None, self._loader):
                return None
            book = session.book
            indices: List[int] = []
            ranges: List[Range] = []
            while len(indices) < self.batch_size and len(ranges) < RANGES:
                lease = next((h for h in book.held if h.taken < len(h) and h.owner in (None, worker)), None)
                lease = lease or book.ask(session.pending, ledger(session), early(session))
                if lease is None:
                    break
                more, claimed = lease.claim(self.batch_size - len(indices), worker)
                indices += more
                ranges.append(claimed)
            if not indices and book.ended:
                return None
            filler = indices or list(range(min(self.batch_size, book.data.size)))
            block = Block([filler[i % len(filler)] for i in range(self.batch_size)], tuple(ranges))
            self._given.setdefault(worker, deque()).append(block)
        if not indices:
            time.sleep(REST)
        return block

    def next(self) -> Optional[Block]:
        """Return the block of the batch that the loader delivers next.

        Return None if no block was made for that batch.
        """
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
    """The connection of a loader worker to the training process, which gives it blocks.

    Each process opens a connection of its own.
    """

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
