"""The batches of shards of unknown length, such as files, URLs or row groups.

A rank has a lease on each shard that it reads. The position in a shard is the number of its records
that were read; the end of the shard is found by reading.
"""

from __future__ import annotations

import inspect
import itertools
from collections import deque
from typing import Any, Callable, Deque, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch.utils.data

from .doubt import Error
from .feeding import batches, begin_batches, digest, kept_feed
from .leases import DataSet, Lease
from .rounds import RANGES, Credit, count
from .session import Session, current


class Request(NamedTuple):
    """A request for the next records of a shard. ``known`` of them are known to exist."""

    lease: int
    epoch: int
    number: int
    start: int
    known: int
    size: int


class Reader:
    """Reads the records of shards in order. It keeps the shard open that it read last."""

    def __init__(self, shards: Sequence[Any], open_shard: Callable[..., Iterable[Any]]) -> None:
        self._shards, self._open = shards, open_shard
        try:
            known = inspect.signature(open_shard).parameters
        except (TypeError, ValueError):  # of some functions in C
            known = {}  # type: ignore[assignment]
        self._seeks, self._by_epoch = "start" in known, "epoch" in known
        self._records: Optional[Iterator[Any]] = None
        # epoch and number of the shard that was read last, and its position
        self._at = (-1, -1, -1)

    def read(self, r: Request) -> Tuple[List[Any], bool]:
        """Return the records of a request, and whether the shard has no more.

        Raise Error if the shard has fewer records than are known.
        """
        if self._records is None and self._at[:2] == (r.epoch, r.number) and r.start >= self._at[2] >= r.known:
            return [], True  # its end was read
        if self._records is None or self._at != (r.epoch, r.number, r.start):
            self._begin(r)
        assert self._records is not None
        records = list(itertools.islice(self._records, r.size))
        self._at = (r.epoch, r.number, r.start + len(records))
        if len(records) < r.size:
            self._records = None
        return records, self._records is None

    def _begin(self, r: Request) -> None:
        self._records = None  # closes a generator
        arguments = {}
        if self._seeks:
            arguments["start"] = r.start
        if self._by_epoch:
            arguments["epoch"] = r.epoch
        self._records = iter(self._open(self._shards[r.number], **arguments))
        if self._seeks:
            return
        skipped = sum(1 for _ in itertools.islice(self._records, r.start))
        if skipped < r.known:
            raise Error(
                "shard %d (%r) has %d records now, and %d of it are in the model: each reading of a shard must have the same records in the same order"
                % (r.number, self._shards[r.number], skipped, r.known)
            )


class _Shards:
    """The data set of the DataLoader: its items are the records of requests."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __getitem__(self, request: Optional[Request]) -> Tuple[Optional[Request], List[Any], bool]:
        # The shards are divided by leases. A data set that sees several workers would divide each
        # shard once more, and leave out the records of the other workers.
        torch.utils.data._utils.worker._worker_info = None
        if request is None:
            return None, [], False
        records, ended = self._reader.read(request)
        return request, records, ended


class _Collate:
    """The collate function of the DataLoader, which has one item in each batch."""

    def __init__(self, collate: Callable[[List[Any]], Any]) -> None:
        self._collate = collate

    def __call__(self, items: List[Any]) -> Tuple[Optional[Request], Any, int, bool]:
        request, records, ended = items[0]
        return request, self._collate(records) if records else None, len(records), ended


class _Slot:
    """A worker of the DataLoader, and its lease.

    Its requests are for the records from ``first`` on, and the next one for those from ``next`` on.
    """

    def __init__(self) -> None:
        self.lease: Optional[Lease] = None
        self.first = self.next = 0

    def seek(self) -> None:
        """Read from the first record on that was not taken. Results of other requests are void."""
        assert self.lease is not None
        self.first = self.next = self.lease.taken


#: A batch, the number of its records, and its credits. The batch is None if it has no records, only
#: the ends of shards.
_Batch = Tuple[Any, int, List[Credit]]


class StreamFeed:
    """A source of batches from leases on shards, read in this process or by workers.

    Each worker reads one shard at a time, and a batch of a worker has the records of one shard.
    """

    def __init__(
        self, session: Session, reader: Reader, batch_size: int, workers: int, collate: Callable[[List[Any]], Any]
    ) -> None:
        self._session, self._reader, self._size, self._collate = session, reader, batch_size, collate
        # batches that were returned and are not in the model; those that are to be returned again
        self._open: Deque[_Batch] = deque()
        self._again: Deque[_Batch] = deque()
        self._slots = [_Slot() for _ in range(workers)]
        self._loader: Any = None
        self._results: Any = None
        if workers:
            self._loader = torch.utils.data.DataLoader(
                _Shards(reader), batch_sampler=_Requests(self), num_workers=workers, collate_fn=_Collate(collate),
                persistent_workers=True
            )

    def close(self) -> None:
        """End the loader's workers, as those of records()."""
        self._results = self._loader = None

    def rewind(self) -> None:
        """Begin a new world: return those batches again that are not in the model.

        The leases have their records back. A batch whose records are not the next ones of this
        rank's leases is dropped.
        """
        batches, self._open, self._again = [*self._open, *self._again], deque(), deque()
        held = {(h.epoch, h.number): h for h in self._session.book.held}
        for batch in batches:
            leases = [held.get((c.epoch, c.number)) for c in batch[2]]
            if all(h is not None and h.taken == c.first for h, c in zip(leases, batch[2])):
                for h, c in zip(leases, batch[2]):
                    assert h is not None
                    h.read(count(c.last) - c.first, c.last != count(c.last))
                self._again.append(batch)
        for slot in self._slots:
            if slot.lease is not None and slot.lease not in held.values():
                slot.lease = None
            elif slot.lease is not None and slot.lease.taken != slot.first:
                slot.seek()

    def next(self) -> Optional[_Batch]:
        """Return a batch, its size and its credits; None if there are no records now."""
        self._forget()
        got = self._again.popleft() if self._again else self._read() if self._loader is None else self._receive()
        if got is not None:
            self._open.append(got)
        return got

    def _forget(self) -> None:
        """Drop the batches that are in the model."""
        ledger, settled = self._session.ledger, self._session.settled
        while self._open and all(
            c.epoch < settled or c.last <= ledger.get((c.epoch, c.number), 0) for c in self._open[0][2]
        ):
            self._open.popleft()

    def _lease(self, others: Sequence[Lease] = ()) -> Optional[Lease]:
        session = self._session
        return session.book.unread(session.pending, session.ledger, others)

    def _request(self, lease: Lease, start: int, size: int) -> Request:
        return Request(lease.id, lease.epoch, lease.number, start, lease.credited, size)

    def _read(self) -> Optional[_Batch]:
        records: List[Any] = []
        credits: List[Credit] = []
        while len(records) < self._size and len(credits) < RANGES:
            lease = self._lease()
            if lease is None:
                break
            more, ended = self._reader.read(self._request(lease, lease.taken, self._size - len(records)))
            records += more
            credits.append(lease.read(len(more), ended))
        if not credits:
            return None
        return (self._collate(records) if records else None), len(records), credits

    def _receive(self) -> Optional[_Batch]:
        """Return what a worker has read, with the ends of shards that had no more records."""
        ends: List[Credit] = []
        while len(ends) < RANGES:
            if self._results is None:
                if not self._assign():
                    break
                self._results = iter(self._loader)
            try:
                request, batch, n, ended = next(self._results)
            except StopIteration:
                self._results = None
                continue
            lease = next((h for h in self._session.book.held if request is not None and h.id == request.lease), None)
            # The request may have been made before a world, in which the records were given back.
            if lease is None or request is None or lease.taken != request.start:
                continue
            ends.append(lease.read(n, ended))
            for slot in self._slots:
                if slot.lease is lease:
                    slot.first = lease.taken
            if n:
                return batch, n, ends
        return (None, 0, ends) if ends else None

    def _assign(self) -> bool:
        """Give each worker without a shard another one; return whether any has one."""
        for slot in self._slots:
            if slot.lease is not None and slot.lease.taken >= len(slot.lease):
                slot.lease = None
        for slot in self._slots:
            if slot.lease is None:
                slot.lease = self._lease([s.lease for s in self._slots if s.lease is not None])
                if slot.lease is None:
                    break
                slot.seek()
        return any(slot.lease is not None for slot in self._slots)

    def requests(self) -> Iterator[List[Optional[Request]]]:
        """Yield a request for each worker in turn, while any has a shard.

        The loader gives them to its workers in turn, too, and runs the generator ahead.
        """
        while self._assign():
            for slot in self._slots:
                if slot.lease is not None and slot.lease.taken >= len(slot.lease):
                    self._assign()
                if slot.lease is None:
                    yield [None]
                    continue
                start, slot.next = slot.next, slot.next + self._size
                yield [self._request(slot.lease, start, self._size)]

    def filler(self) -> Any:
        """Return a batch of weight 0, for a rank that has no records and has had none."""
        for number in range(self._session.book.data.size):
            records, _ = self._reader.read(Request(0, 0, number, 0, 0, self._size))
            if records:
                return self._collate(records)
        raise Error("no shard has a record")


class _Requests:
    """The batch sampler of a feed's DataLoader."""

    def __init__(self, feed: StreamFeed) -> None:
        self._feed = feed

    def __iter__(self) -> Iterator[List[Optional[Request]]]:
        return self._feed.requests()


def stream(shards: Union[int, Sequence[Any]], open: Callable[..., Iterable[Any]], batch_size: int, epochs: int = 1,
           shuffle: bool = True, seed: int = 0, workers: int = 0,
           collate_fn: Optional[Callable[[List[Any]], Any]] = None) -> Iterator[Any]:
    """Yield batches of the records of ``shards`` until every record of all epochs is in the model.

    ``shards`` is a list of names, such as files or URLs, or a number of shards. ``open(shard)``
    returns an iterable of the records of one. It must have the same records in the same order each
    time. If ``open`` has a parameter ``start``, it begins after that many records; otherwise these
    are read and dropped. If it has a parameter ``epoch``, it gets the number of the epoch, from 0.

    Each rank reads shards that no other rank reads, one at a time, or one for each of ``workers``
    processes. If a process is lost, another one continues its shard after the records that are in
    the model. ``shuffle`` shuffles the shards of each epoch, by ``seed``, and not their records.

    Batches are credited, and ranks without records get batches of weight 0, as with
    :func:`records`. Define ``open`` and ``collate_fn`` outside of the function that trains, so that
    workers and batches are kept when the world changes.

    Raise ValueError if ``batch_size`` is below 1, and Error as :func:`records` does, or if a shard
    has lost records.
    """
    names = range(shards) if isinstance(shards, int) else shards
    session = begin_batches(batch_size, "stream()")
    session.declare(DataSet(len(names), epochs, shuffle, seed, stream=True, digest=digest(names)))
    session.book.rewind(session.ledger)
    collate = collate_fn or torch.utils.data.default_collate
    yield from batches(
        session,
        kept_feed(
            open,
            (list(names), batch_size, workers, collate),
            lambda: StreamFeed(session, Reader(names, open), batch_size, workers, collate),
        ),
    )
