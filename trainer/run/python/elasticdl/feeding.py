"""Yields the batches of a job's records, each record on one rank, and ends on all ranks
together."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Iterator, List, Optional, Tuple

import torch.utils.data

from .doubt import Error
from .leases import DataSet, Lease
from .rounds import ENDED, LEAVE, STEPS, STOP, STRETCHES, Credit
from .session import Session, current

#: How long ranks rest that all have no records, in seconds: those of a lost rank come back, or the
#: master does.
REST = 0.02
#: How many leases without records are given in one round: a script that asks for more does not
#: train on them.
IDLE = 1000


def dataset(size: int, epochs: int = 1, shuffle: bool = True, seed: int = 0, records_per_task: int = 0) -> None:
    """Declares the job's data set, for :func:`lease`. All processes declare the same."""
    current().declare(DataSet(size, epochs, shuffle, seed, records_per_task))


def lease() -> Optional[Lease]:
    """Returns a lease on records that no other rank trains on; None when all are in the model.

    While other ranks have the rest, it returns a lease without records (its ``len`` is 0), so that
    this rank takes part in their round. Treat it like any other: its ``indices()`` are records of
    which the gradient counts nothing, as many as a rank brings to a round, and what you report of
    it is ignored. Use :func:`records` unless you need to be below the data loader.
    """
    session = current()
    session.check_ready()
    while True:
        got = session.book.whole(session.pending, session.ledger)
        if got is not None:
            return got
        if session.over:
            return None
        # this rank is in a round already, or will make one
        if session.headers or session.book.reports():
            return _idle(session)
        if not session.synced and session.world.size > 1:
            raise Error("lease() waits for other ranks here: call it in the function under @elasticdl.run")
        if _open(session, session.held):
            return _idle(session)
        if session.over:
            return None


def _open(session: Session, weight: int = 0) -> bool:
    """Meets the other ranks, and reports whether they make a round, which is open then. If none
    ever will, the session is over."""
    header = session.gathered(session.begin(weight, ended=session.book.ended))
    # of the open round: records may be in an earlier part of it
    if session.weights()[1] > 0 or header.any(STEPS):
        return True
    session.drop()
    if header.all(ENDED):
        session.over = True
        return False
    if header.any(STOP):
        session.rest()
    session.check(header.any(LEAVE))
    time.sleep(REST)
    return False


class _Idle(Lease):
    """Is a lease without records of its own. Its range is of records that others have, too."""

    def __init__(self, data: DataSet, n: int, pending: List[Credit]) -> None:
        super().__init__(data, {"lease": 0, "epoch": 0, "number": 0, "start": 0, "end": min(n, data.size)}, pending, 0)

    def __len__(self) -> int:
        return 0

    def indices(self) -> List[int]:
        return list(range(self.end))

    def done(self, n: int) -> None:
        pass


# leases without records: in which round, and how many
_given: Tuple[int, int] = (0, 0)


def _idle(session: Session) -> Lease:
    global _given
    _given = (session.round, _given[1] + 1 if _given[0] == session.round else 1)
    if _given[1] > IDLE:
        raise Error(
            "lease() gave %d leases without records in one round: train on their indices() as on those of others, and call step()"
            % IDLE
        )
    for header in session.headers:
        session.batch = max(session.batch, *(row[1] for row in session.gathered(header).rows()))
    return _Idle(session.book.data, session.batch, session.pending)


class _Feed:
    """Turns leases into batches, in this process or in the workers of a DataLoader, which keeps
    their order."""

    def __init__(
        self, session: Session, data: Any, batch_size: int, workers: int, collate: Callable[[List[Any]], Any]
    ) -> None:
        self._session, self._data, self._size, self._collate = session, data, batch_size, collate
        self._loader: Any = None
        self._batches: Any = None
        self._ahead: Deque[Tuple[int, List[Credit]]] = deque()
        if workers:
            self._loader = torch.utils.data.DataLoader(
                data, batch_sampler=_Plan(self), num_workers=workers, collate_fn=collate, persistent_workers=True
            )

    def close(self) -> None:
        """Ends the loader's workers by dropping the references to the loader, which refers to this
        object."""
        self._batches = self._loader = None

    def rewind(self) -> None:
        self._batches = None
        self._ahead.clear()

    def take(self) -> Tuple[List[int], List[Credit]]:
        return self._session.book.take(self._size, STRETCHES, self._session.pending, self._session.ledger)

    def plan(self) -> Iterator[List[int]]:
        """Yields the indices of batches as long as there are leases. The loader runs it, ahead of
        the training."""
        while True:
            indices, credits = self._first or self.take()
            self._first: Any = None
            if not indices:
                return
            self._ahead.append((len(indices), credits))
            yield indices

    def next(self) -> Optional[Tuple[Any, int, List[Credit]]]:
        """Returns a batch, its size and its credits; None: there are no records now."""
        if self._loader is None:
            indices, credits = self.take()
            return (self.fetch(indices), len(indices), credits) if indices else None
        while True:
            if self._batches is None:
                self._first = self.take()
                if not self._first[0]:
                    return None
                self._batches = iter(self._loader)
            try:
                batch = next(self._batches)
            except StopIteration:
                self._batches = None
                continue
            n, credits = self._ahead.popleft()
            return batch, n, credits

    def fetch(self, indices: List[int]) -> Any:
        return self._collate([self._data[i] for i in indices])

    def filler(self) -> Any:
        """Returns a batch for a rank that has no records and had none: its gradients have weight
        0."""
        return self.fetch(list(range(min(self._size, len(self._data)))))


class _Plan:
    """Is the batch sampler of a feed's DataLoader."""

    def __init__(self, feed: _Feed) -> None:
        self._feed = feed

    def __iter__(self) -> Iterator[List[int]]:
        return self._feed.plan()


# from world to world, with the workers of its loader
_kept: Optional[Tuple[Any, int, int, Any, _Feed]] = None


def _feed(session: Session, data: Any, batch_size: int, workers: int, collate: Callable[[List[Any]], Any]) -> _Feed:
    global _kept
    if _kept is None or _kept[0] is not data or _kept[1:4] != (batch_size, workers, collate):
        if _kept is not None:
            _kept[4].close()  # before others begin
        _kept = (data, batch_size, workers, collate, _Feed(session, data, batch_size, workers, collate))
    return _kept[4]


def records(data: Any, batch_size: int, epochs: int = 1, shuffle: bool = True, workers: int = 0, seed: int = 0,
            records_per_task: int = 0, collate_fn: Optional[Callable[[List[Any]], Any]] = None) -> Iterator[Any]:
    """Yields batches of ``data`` (with ``len`` and indices) until every record of all epochs is in
    the model.

    Each batch belongs to the round that the next :func:`step` ends. While other ranks have records
    and this one has none, it is handed a batch that it had before, so that it takes part; the
    gradient of such a batch counts nothing. So it is while a round is open that has records, when
    the batches of an accumulation do not divide their number. ``workers`` fetch batches in
    processes of their own; do not fetch ahead otherwise, since a batch is credited with the next
    :func:`step`. Give the same ``data`` object in each world, so that these processes are kept.
    """
    if batch_size <= 0:
        raise ValueError("batch_size=%d: it must be at least 1" % batch_size)
    session = current()
    session.check_ready()
    if session.thread not in (0, threading.get_ident()):
        raise Error(
            "records() must be iterated by the thread that trains: a batch belongs to the step() that follows. To fetch ahead, give workers="
        )
    session.declare(DataSet(len(data), epochs, shuffle, seed, records_per_task))
    session.book.rewind(session.ledger)
    feed = _feed(session, data, batch_size, workers, collate_fn or torch.utils.data.default_collate)
    feed.rewind()
    last: Any = None
    while True:
        got = feed.next()
        if got is not None:
            last, n, credits = got
            session.begin(n, tuple(credits))
            yield last
            continue
        if _open(session):
            if last is None:
                last = feed.filler()
            yield last
        elif session.over:
            return
