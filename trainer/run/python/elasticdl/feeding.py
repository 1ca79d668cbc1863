"""The batches of a job's records: each record on one rank, and the same end on all ranks."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Iterable, Iterator, List, Optional, Sequence, Tuple

import torch.utils.data

from .doubt import Error
from .leases import DataSet, Lease
from .rounds import ENDED, LEAVE, RANGES, STEPS, STOP, Credit
from .session import Session, current
from .spent import DATA

#: Time between two rounds if no rank has records, in seconds. Leases of a lost rank may return, and
#: so may a lost master.
REST = 0.02
#: Maximum number of leases without records in one round. A script that asks for more does not train
#: on them.
IDLE = 1000


def dataset(size: int, epochs: int = 1, shuffle: bool = True, seed: int = 0, records_per_task: int = 0) -> None:
    """Declare the job's data set, for :func:`lease`. All processes declare the same.

    ``records_per_task`` 0 selects ``size`` / 64, rounded up, and at most 4096. Raise Error if
    another data set is declared, or if the records in the state are of another.
    """
    current().declare(DataSet(size, epochs, shuffle, seed, records_per_task))


def lease() -> Optional[Lease]:
    """Return a lease on records that no other rank trains on; None when all are in the model.

    While other ranks have the remaining records, the lease has no records (its ``len`` is 0), so
    that this rank takes part in their round. Treat it like any other. Its ``indices()`` are records
    of other ranks, as many as a rank brings to a round. Their gradient has weight 0, and reports
    about this lease are ignored. Use :func:`records` unless you need to work below the data loader.

    Raise Error if the script asks for leases without records again and again in one round.
    """
    session = current()
    session.check_ready()
    if session.book.used and session.book.data.stream:
        raise Error("lease() has no records of unknown length: use elasticdl.stream() alone")
    while True:
        with DATA:
            got = session.book.whole(session.pending, session.ledger)
        if got is not None:
            return got
        if session.over:
            return None
        # This rank is in a round already, or will make one.
        if session.headers or session.book.reports():
            return _idle(session)
        if not session.synced and session.world.size > 1:
            raise Error("lease() waits for other ranks here: call it in the function under @elasticdl.run")
        with DATA:
            opened = _open(session, session.held)
        if opened:
            return _idle(session)
        if session.over:
            return None


def _open(session: Session, weight: int = 0) -> bool:
    """Meet the other ranks; return True if they make a round, which is open then.

    Set ``session.over`` if there will be no further round.
    """
    header = session.gathered(session.begin(weight, ended=session.book.ended))
    # The weights are of the whole round: records may be in an earlier part of it.
    if session.weights()[1] > 0 or header.any(STEPS):
        return True
    session.drop()
    if header.all(ENDED):
        session.over = True
        return False
    if header.any(STOP):
        session.rest()
    session.save_parts([header])
    session.check(header.any(LEAVE))
    time.sleep(REST)
    return False


class _Idle(Lease):
    """A lease without records of its own. Its range has records that others train on."""

    def __init__(self, data: DataSet, n: int, pending: List[Credit]) -> None:
        super().__init__(data, {"lease": 0, "epoch": 0, "number": 0, "start": 0, "end": min(n, data.size)}, pending, 0)

    def __len__(self) -> int:
        return 0

    def indices(self) -> List[int]:
        return list(range(self.end))

    def done(self, n: int) -> None:
        pass


# leases without records: the round, and their number in it
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
    """A source of batches from leases, made in this process or by the workers of a DataLoader.

    The DataLoader delivers batches in the order in which they were planned.
    """

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
        """End the loader's workers by dropping the references to the loader.

        The loader refers to this object. Without the cycle of references its destructor runs at
        once.
        """
        self._batches = self._loader = None

    def rewind(self) -> None:
        self._batches = None
        self._ahead.clear()

    def take(self) -> Tuple[List[int], List[Credit]]:
        return self._session.book.take(self._size, RANGES, self._session.pending, self._session.ledger)

    def plan(self) -> Iterator[List[int]]:
        """Yield the indices of batches while there are leases.

        The loader runs the generator ahead of the training.
        """
        while True:
            indices, credits = self._first or self.take()
            self._first: Any = None
            if not indices:
                return
            self._ahead.append((len(indices), credits))
            yield indices

    def next(self) -> Optional[Tuple[Any, int, List[Credit]]]:
        """Return a batch, its size and its credits; None if there are no records now."""
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
        """Return a batch of weight 0, for a rank that has no records and has had none."""
        return self.fetch(list(range(min(self._size, len(self._data)))))


class _Plan:
    """The batch sampler of a feed's DataLoader."""

    def __init__(self, feed: _Feed) -> None:
        self._feed = feed

    def __iter__(self) -> Iterator[List[int]]:
        return self._feed.plan()


# the feed and its arguments, kept from world to world with the workers of its loader
_kept: Optional[Tuple[Any, Tuple[Any, ...], Any]] = None


def kept_feed(source: Any, arguments: Tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Return the feed of a source with these arguments: that of the world before, or a new one."""
    global _kept
    if _kept is None or _kept[0] is not source or _kept[1] != arguments:
        if _kept is not None:
            _kept[2].close()  # before other workers start
        _kept = (source, arguments, make())
    return _kept[2]


def begin_batches(batch_size: int, function: str) -> Session:
    """Return the session, for the batches of a function.

    Raise ValueError if ``batch_size`` is below 1, and Error if this is not the thread that trains.
    """
    if batch_size <= 0:
        raise ValueError("batch_size=%d: it must be at least 1" % batch_size)
    session = current()
    session.check_ready()
    if session.thread not in (0, threading.get_ident()):
        raise Error(
            "%s must be iterated by the thread that trains: a batch belongs to the step() that follows. To fetch ahead, give workers="
            % function
        )
    return session


def batches(session: Session, feed: Any) -> Iterator[Any]:
    """Yield the batches of a feed, each in a round of its own, and others of weight 0, to the end."""
    feed.rewind()
    last: Any = None
    while True:
        with DATA:
            got = feed.next()
        if got is not None and got[1]:
            last, n, credits = got
            session.begin(n, tuple(credits))
            yield last
            continue
        if got is not None:
            session.pending.extend(got[2])  # ends of shards, for the next header
        with DATA:
            opened = _open(session)
        if opened:
            if last is None:
                last = feed.filler()
            yield last
        elif session.over:
            return


def records(data: Any, batch_size: int, epochs: int = 1, shuffle: bool = True, workers: int = 0, seed: int = 0,
            records_per_task: int = 0, collate_fn: Optional[Callable[[List[Any]], Any]] = None,
            order: Optional[Callable[[int], Sequence[int]]] = None) -> Iterator[Any]:
    """Yield batches of ``data`` until every record of all epochs is in the model.

    ``data`` has ``__len__`` and ``__getitem__``. Each batch belongs to the round that the next
    :func:`step` ends and is credited with it, so do not fetch batches ahead yourself: ``workers``
    processes do that. Give the same ``data`` object in each world, so that these processes are
    kept.

    While other ranks have records and this rank has none, it gets a batch that it had before, so
    that it takes part in their round. The gradient of such a batch has weight 0. The same happens
    in an open round with records, if the batches of an accumulation do not divide the number of
    batches.

    ``order`` returns the indices of the records of an epoch, from 0, in the order in which they are
    taken: that of a sampler, for example. It must return the same in all processes, and as many in
    each epoch. An index may occur more than once, or never. ``shuffle`` then shuffles only the
    tasks, each of which has ``records_per_task`` consecutive indices.

    Raise ValueError if ``batch_size`` is below 1, and Error if the generator runs in another thread
    than the training, or if the data set is refused as by :func:`dataset`.
    """
    session = begin_batches(batch_size, "records()")
    session.declare(_ordered(data, epochs, shuffle, seed, records_per_task, order))
    session.book.rewind(session.ledger)
    collate = collate_fn or torch.utils.data.default_collate
    yield from batches(
        session,
        kept_feed(data, (batch_size, workers, collate), lambda: _Feed(session, data, batch_size, workers, collate)),
    )


def _ordered(data: Any, epochs: int, shuffle: bool, seed: int, records_per_task: int,
             order: Optional[Callable[[int], Sequence[int]]]) -> DataSet:
    """Return the declaration of a data set with an order of the script's, if there is one."""
    if order is None:
        return DataSet(len(data), epochs, shuffle, seed, records_per_task)
    first = [int(i) for i in order(0)]
    wrong = next((i for i in first if not 0 <= i < len(data)), None)
    if wrong is not None:
        raise Error("order(0) has the index %d, and there are %d records" % (wrong, len(data)))
    return DataSet(len(first), epochs, shuffle, seed, records_per_task, digest=digest(first), order=order)


def digest(names: Iterable[Any]) -> int:
    """Return a number that is the same for equal names, 0 if they are no plain values."""
    h = hashlib.blake2b(digest_size=6)
    for name in names:
        name = os.fspath(name) if isinstance(name, os.PathLike) else name
        if isinstance(name, (tuple, list)):
            name = [len(name), digest(name)]
            if not name[1]:
                return 0
        elif not isinstance(name, (str, bytes, int, float, type(None))):
            return 0
        h.update(repr(name).encode() + b"\n")
    return int.from_bytes(h.digest(), "big")
