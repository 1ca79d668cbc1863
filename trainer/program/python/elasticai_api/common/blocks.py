"""Hands record indices to a DataLoader's workers in blocks of one batch, so that the k-th batch is known record by record.

ElasticDL counts *how many* records were trained on; with several loader workers it cannot know which. Here a loader
worker connects to the training process and is given a block of ``batch_size`` indices at a time, from leases of its own.
A DataLoader delivers batch k from worker k mod W, so the k-th batch is the next block of that worker.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import tempfile
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

from elasticdl import session as sessions
from elasticdl.leases import Lease
from elasticdl.rounds import STRETCHES, Credit

#: How long a worker without records rests before it is given a block that counts nothing, in seconds.
REST = 0.02


class Block(NamedTuple):
    """Is the records of one batch. It has fewer credits than indices if it is filled up with records that are credited elsewhere."""

    indices: List[int]
    credits: Tuple[Credit, ...]


def valid(block: Block) -> Tuple[Credit, ...]:
    """Returns the part of a block to train on: after a change of the world some of it may be in the model, or leased to another."""
    session = sessions.current()
    held = {(h.epoch, h.number) for h in session.book.held}
    return tuple(c for c in block.credits if (c.epoch, c.number) in held and c.first >= session.ledger.get((c.epoch, c.number), 0))


class Blocks:
    """Makes blocks from leases, in the training process. Each loader worker has leases of its own."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.workers = 0
        self._lock = threading.RLock()
        self._leases: Dict[int, List[Lease]] = {}
        self._given: Dict[int, Deque[Block]] = {}
        self._next = 0
        self.path = os.path.join(tempfile.mkdtemp(prefix="elasticai-"), "blocks")
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
            threading.Thread(target=self._answer, args=(c,), daemon=True).start()

    def _answer(self, c: socket.socket) -> None:
        try:
            while True:
                worker, workers = struct.unpack("<ii", _exactly(c, 8))
                self.workers = workers
                block = self.make(worker)
                body = json.dumps(block.indices if block else []).encode()
                c.sendall(struct.pack("<i", len(body)) + body)
        except (OSError, EOFError):
            c.close()

    def make(self, worker: int) -> Optional[Block]:
        """Makes the next block of a worker, None at the end. While others have the remaining records it repeats some, without credits."""
        session = sessions.current()
        with self._lock:
            book = session.book
            mine = self._leases.setdefault(worker, [])
            indices: List[int] = []
            credits: List[Credit] = []
            while len(indices) < self.batch_size and len(credits) < STRETCHES:
                lease = next((h for h in mine if h.taken < len(h)), None)
                if lease is None:
                    mine[:] = []
                    lease = book.ask(session.pending, session.ledger)
                    if lease is None:
                        break
                    mine.append(lease)
                more, credit = lease.take(self.batch_size - len(indices))
                indices += more
                credits.append(credit)
            if not indices and book.ended:
                return None
            filler = indices or list(range(min(self.batch_size, book.data.size)))
            block = Block([filler[i % len(filler)] for i in range(self.batch_size)], tuple(credits))
            self._given.setdefault(worker, deque()).append(block)
        if not indices:
            time.sleep(REST)
        return block

    def next(self) -> Optional[Block]:
        """Returns the block of the batch that the loader delivers next; None if it delivered none that was made here."""
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
    """Asks the training process for blocks, from a process of the loader. Each process has a connection of its own."""

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
