"""The leases of this process: which of their records it has taken, and which are in the model."""

from __future__ import annotations

import threading
from typing import Any, Callable, Collection, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .doubt import Error
from .rounds import END, Credit, Ledger, count

#: The fields of a data set on which the meaning of a ledger depends, by name.
Cut = Dict[str, Any]


def permute(i: int, size: int, seed: int) -> int:
    """Return the image of ``i`` under a permutation of [0, ``size``) that ``seed`` selects.

    The permutation is the same on every machine and in every version. It is a Feistel network over
    the next power of four, applied until the result is in range: at most four times on average.
    """
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = i >> half, i & mask
        for n in range(4):
            x = (right + seed + n * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
            x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
            x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
            left, right = right, left ^ ((x ^ (x >> 31)) & mask)
        i = left << half | right
        if i < size:
            return i


class DataSet:
    """The data set declared to the master. All processes must declare the same.

    ``records_per_task`` 0 selects ``size`` / 64, rounded up, and at most 4096. With ``stream`` the
    data set has ``size`` shards of unknown length, each of which is a task. ``order`` returns the
    indices of the records of an epoch, instead of the package's own order. ``digest`` is a number
    of what all processes must agree on besides, such as the names of shards; 0: nothing.

    Raise Error if ``size`` or ``epochs`` is below 1.
    """

    def __init__(
        self, size: int, epochs: int = 1, shuffle: bool = True, seed: int = 0, records_per_task: int = 0,
        stream: bool = False, digest: int = 0, order: Optional[Callable[[int], Sequence[int]]] = None
    ) -> None:
        if size <= 0 or epochs <= 0:
            raise Error("a data set of %d records for %d epochs: both must be at least 1" % (size, epochs))
        self.size, self.epochs, self.shuffle, self.seed = size, epochs, shuffle, seed
        self.records_per_task = 1 if stream else records_per_task or max(1, min(4096, -(-size // 64)))
        self.stream, self.digest, self._order = stream, digest, order
        # the epoch whose order was asked for last, and that order
        self._ordered: Tuple[int, Sequence[int]] = (-1, ())

    def fields(self) -> Dict[str, Any]:
        return dict(self.cut(), epochs=self.epochs)

    def cut(self) -> Cut:
        """Return the fields that determine which record is at which place of which task.

        The ledger of an open epoch depends on them.
        """
        cut: Cut = dict(
            size=self.size, records_per_task=self.records_per_task, shuffle=self.shuffle, seed=self.seed
        )
        if self.stream:
            cut["stream"] = True
        if self.digest:
            cut["digest"] = self.digest
        return cut

    def index(self, epoch: int, at: int) -> int:
        """Return the index of the record at the place ``at`` of an epoch.

        Raise Error if the order of this epoch has another number of records than ``size``.
        """
        if self._order is not None:
            if self._ordered[0] != epoch:
                self._ordered = (epoch, self._order(epoch))
            if len(self._ordered[1]) != self.size:
                raise Error(
                    "order(%d) has %d records, and order(0) has %d: each epoch must have as many"
                    % (epoch, len(self._ordered[1]), self.size)
                )
            return int(self._ordered[1][at])
        return permute(at, self.size, (self.seed << 20) ^ epoch) if self.shuffle else at


def settle(cut: Cut, ledger: Ledger, settled: int) -> int:
    """Return the number of complete epochs in a state, with those that the ledger still lists.

    ``settled`` epochs are known to be complete.
    """
    if cut.get("stream"):
        while sum(done >= END for (epoch, _), done in ledger.items() if epoch == settled) >= cut["size"]:
            settled += 1
        return settled
    tasks = -(-cut["size"] // cut["records_per_task"])
    while sum(done for (epoch, number), done in ledger.items() if epoch == settled and number < tasks) >= cut["size"]:
        settled += 1
    return settled


def remedied(wrong: str, cut: Optional[Cut]) -> str:
    """Return why a state does not fit, with what to do about it."""
    remedy = "restore that data set"
    if cut is None:
        remedy = "call checkpoint(path, same_data=True) if the data set is the same"
    return "%s; %s, or give checkpoint() another path to start over" % (wrong, remedy)


def misfit(cut: Optional[Cut], data: DataSet, ledger: Ledger, settled: int) -> str:
    """Return why a state with these records cannot be trained on with ``data``, "" if it can.

    ``cut`` is that of the data set of the state, None if it is not known. Complete epochs fit every
    data set: the next epoch takes the records that the data set has now.
    """
    is_open = any(done for (epoch, _), done in ledger.items() if epoch >= settled)
    if settled > data.epochs or is_open and settled == data.epochs:
        return "it has %d complete epochs%s, and the script declares epochs=%d" % (
            settled,
            " and records of another" if is_open else "",
            data.epochs,
        )
    if cut is None:
        if not is_open:
            return ""
        return (
            "it has records of an open epoch and does not name their data set, "
            "as an older version of this package wrote it"
        )
    now = data.cut()
    if not cut["shuffle"] and not now["shuffle"]:
        now["seed"] = cut["seed"]  # has no effect
    names = list(now) + [name for name in cut if name not in now]
    differs = [
        "%s=%s (the script declares %s)" % (name, cut.get(name), now.get(name))
        for name in names
        if cut.get(name) != now.get(name)
    ]
    if differs and is_open:
        return "it has records of an open epoch of a data set with " + ", ".join(differs)
    if cut["size"] != data.size and settled == data.epochs:
        return (
            "its %d epochs are complete, of a data set with size=%d (the script declares %d, and no further epoch)"
            % (settled, cut["size"], data.size)
        )
    return ""


class Lease:
    """A range of records that no other process trains on.

    Its records are taken in one order, so a count describes progress. ``credited`` records are in
    the model, ``taken`` were handed out, and ``reported`` were reported by the script. ``start``
    and ``end`` are places in the epoch. A shard of unknown length has ``END`` as its length: its
    counts have ``END`` added when its end was read.
    """

    def __init__(self, data: DataSet, grant: Dict[str, Any], pending: List[Credit], credited: int) -> None:
        self.id, self.epoch, self.number = int(grant["lease"]), int(grant["epoch"]), int(grant["number"])
        self.start, self.end = int(grant["start"]), int(grant["end"])
        self.credited = credited  # records in the model
        self.taken = self.reported = self.credited
        self.given = False
        # number of times that taken records were given back; those of an earlier turn are void
        self.turn = 0
        # the loader worker that takes the records of this turn; None: not chosen yet
        self.owner: Optional[int] = None
        # guards taken, reported, turn and owner against a loader that fetches ahead
        self._lock = threading.Lock()
        self._indices: Optional[List[int]] = grant.get("indices")
        self._data, self._pending = data, pending

    def __len__(self) -> int:
        return END if self._data.stream else self.end - self.start

    def read(self, n: int, ended: bool) -> Credit:
        """Take ``n`` records of a shard of unknown length, and its end; return the credit for them."""
        with self._lock:
            first, self.taken = self.taken, self.taken + n + (END if ended else 0)
            return Credit(self.epoch, self.number, first, self.taken)

    def indices(self) -> List[int]:
        """Return the indices of the records that are not in the model yet, in order."""
        return [self._index(i) for i in range(self.credited, len(self))]

    def _index(self, i: int) -> int:
        return self._indices[i] if self._indices is not None else self._data.index(self.epoch, self.start + i)

    def take(self, n: int) -> Tuple[List[int], Credit]:
        """Take up to ``n`` records; return their indices, and the credit for them."""
        indices, claimed = self.claim(n)
        return indices, claimed.credit

    def claim(self, n: int, owner: Optional[int] = None) -> Tuple[List[int], Range]:
        """Take up to ``n`` records for one loader worker; return their indices and range."""
        with self._lock:
            first, last, turn = self.taken, min(self.taken + n, len(self)), self.turn
            self.taken, self.owner = last, owner
        return [self._index(i) for i in range(first, last)], Range(
            self, turn, Credit(self.epoch, self.number, first, last)
        )

    def back(self, turn: int, done: int) -> None:
        """Give back what was taken in this turn. A new turn takes the record ``done`` next.

        If ``turn`` is over already, nothing changes.
        """
        with self._lock:
            if turn == self.turn:
                self.turn, self.owner, self.given = turn + 1, None, False
                self.taken = self.reported = done
                self.credited = min(self.credited, done)

    def done(self, n: int) -> None:
        """Report that the next ``n`` records are in this round.

        Call it before the gradients are reduced. Raise Error as :meth:`report` does.
        """
        self._pending.append(self.report(n))

    def report(self, n: int) -> Credit:
        """Count the next ``n`` records as reported, and return the credit for them.

        Raise Error if the lease has fewer records that are not reported.
        """
        last = self.reported + n
        if n <= 0 or last > len(self):
            raise Error("done(%d): the lease has %d records that are not reported" % (n, len(self) - self.reported))
        first, self.reported = self.reported, last
        return Credit(self.epoch, self.number, first, last)


class Range(NamedTuple):
    """A range of records that were taken from a lease, and the turn in which they were taken."""

    lease: Lease
    turn: int
    credit: Credit


class AgentSource:
    """A source of leases from the master, through the agent."""

    def __init__(self, link: Any) -> None:
        self._link = link

    def declare(self, data: DataSet) -> None:
        known = self._link.ask("dataset", **data.fields())
        if data.stream and not (known or {}).get("stream"):
            raise Error(
                "the agent is of an older version, which has no elasticdl.stream(): update elasticdl in the image"
            )

    def grant(self) -> Dict[str, Any]:
        return dict(self._link.ask("lease"))

    def had(self, progress: List[List[int]]) -> None:
        """Report records of leases that are in the state without a round of this process.

        Each row of ``progress`` has the lease's id and the number of its records in the state.
        """
        self._link.send("had", leases=progress)


class LocalSource:
    """A source of leases for a process without an agent, to which it grants all records."""

    def __init__(self) -> None:
        self._data: Optional[DataSet] = None
        self._next = 0

    def declare(self, data: DataSet) -> None:
        self._data = data

    def grant(self) -> Dict[str, Any]:
        data = self._data
        assert data is not None
        tasks = -(-data.size // data.records_per_task)
        epoch, number = divmod(self._next, tasks)
        if epoch >= data.epochs:
            return {"over": True}
        self._next += 1
        if data.stream:
            number = data.index(epoch, number)
        start = number * data.records_per_task
        end = min(start + data.records_per_task, data.size)
        return {"lease": self._next, "epoch": epoch, "number": number, "start": start, "end": end, "done": 0}

    def had(self, progress: List[List[int]]) -> None:
        pass


class Book:
    """The leases of this process, oldest first.

    A lease is dropped when all its records are in the model, or when it is void.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._data: Optional[DataSet] = None
        self.held: List[Lease] = []
        self.ended = False  # the master has no more leases
        # taken records remain taken in a new world, because the script still has them
        self.sticky = False
        # number of epochs that are in the state whole, and not in its ledger
        self.settled = 0
        # number of records that each shard of unknown length had in these epochs, last
        self.lengths: Dict[int, int] = {}
        # number of records of shards of unknown length in these epochs
        self.counted = 0
        self._floor = 0
        # had() reported records, and the agent does not know yet whether all ranks have them
        self._news = False
        self._lock = threading.RLock()

    @property
    def used(self) -> bool:
        return self._data is not None

    @property
    def data(self) -> DataSet:
        if self._data is None:
            raise Error("no data set is declared: call elasticdl.records(), or elasticdl.dataset() before lease()")
        return self._data

    def check(self, data: DataSet) -> None:
        """Raise Error if another data set than this one was declared."""
        if self._data is not None and self._data.fields() != data.fields():
            raise Error(
                "a job has one data set; it was declared with %s, and now with %s"
                % (self._data.fields(), data.fields())
            )

    def declare(self, data: DataSet) -> None:
        """Declare the data set to the master, unless it was declared before.

        Raise Error as :meth:`check` does.
        """
        self.check(data)
        if self._data is None:
            self._source.declare(data)
            self._data = data

    def ask(self, pending: List[Credit], ledger: Ledger, early: bool = False) -> Optional[Lease]:
        """Request another lease; return None if there is none now.

        If ``ended`` is set then, there will be none any more. With ``early``, the state of this
        world, with its ledger, has still to be received. The lease then begins after the records
        that the master knows as credited, if these are more than in ``ledger``.
        """
        while not self.ended:
            grant = self._source.grant()
            if grant.get("over"):
                self.ended = True
                return None
            if grant.get("wait"):
                return None
            known, credited = int(grant.get("done", 0)), self._credited(grant, ledger)
            lease = Lease(self.data, grant, pending, max(credited, known) if early else credited)
            if lease.credited > known:  # credited to a lost process
                self._had([[lease.id, lease.credited]])
            with self._lock:
                if lease.id >= self._floor and all(lease.id != h.id for h in self.held):
                    self.held.append(lease)
                    if lease.taken < len(lease):
                        return lease
                    lease.given = True  # no records are left
        return None

    def _credited(self, grant: Dict[str, Any], ledger: Ledger) -> int:
        if int(grant["epoch"]) < self.settled:
            if self.data.stream:
                return END + self.lengths.get(int(grant["number"]), 0)
            return int(grant["end"]) - int(grant["start"])
        return ledger.get((int(grant["epoch"]), int(grant["number"])), 0)

    def _had(self, progress: List[List[int]]) -> None:
        if progress:
            self._source.had(progress)
            # Not before: another thread may be about to report that all ranks have met.
            self._news = True

    def news(self) -> bool:
        """Return whether the agent got reports of records outside of rounds since the last call."""
        news, self._news = self._news, False
        return news

    def reports(self) -> bool:
        """Return whether the script has leases of which it has not reported all records."""
        return any(h.given and h.reported < len(h) for h in self.held)

    def whole(self, pending: List[Credit], ledger: Ledger, early: bool = False) -> Optional[Lease]:
        """Return a lease that was not returned before: one of an earlier world, or a new one.

        Return None as :meth:`ask` does; ``early`` has the same meaning.
        """
        lease = next((h for h in self.held if not h.given), None) or self.ask(pending, ledger, early)
        if lease is not None:
            lease.given = True
        return lease

    def unread(self, pending: List[Credit], ledger: Ledger, others: Collection[Lease] = ()) -> Optional[Lease]:
        """Return a lease with records that were not taken and is not among ``others``, or a new one.

        Return None as :meth:`ask` does.
        """
        return next((h for h in self.held if h.taken < len(h) and h not in others), None) or self.ask(pending, ledger)

    def take(self, n: int, ranges: int, pending: List[Credit], ledger: Ledger) -> Tuple[List[int], List[Credit]]:
        """Take up to ``n`` records from at most ``ranges`` leases; return indices and credits.

        Both are empty if there are no records now. If ``ended`` is set then, there will be none any
        more.
        """
        indices: List[int] = []
        credits: List[Credit] = []
        while len(indices) < n and len(credits) < ranges:
            lease = self.unread(pending, ledger)
            if lease is None:
                break
            more, credit = lease.take(n - len(indices))
            indices += more
            credits.append(credit)
        return indices, credits

    def credit(self, ledger: Ledger) -> List[List[int]]:
        """Note which records are in the model, and drop complete leases.

        Return the progress of the leases that have changed. Each row has the lease's id and the
        number of its records in the model.
        """
        progress = []
        with self._lock:
            for h in self.held:
                done = ledger.get((h.epoch, h.number), 0)
                if done > h.credited:
                    h.credited = done
                    progress.append([h.id, done])
            self.held = [h for h in self.held if h.credited < len(h)]
        return progress

    def note(self, ledger: Ledger) -> None:
        """Note which records are in the model, and report those that are not of a round."""
        self._had(self.credit(ledger))

    def rewind(self, ledger: Ledger) -> None:
        """Give back the records that were taken and are not in the model, unless ``sticky`` is set.

        The ledger is that of a new world.
        """
        self.ended = False
        self.note(ledger)
        if not self.sticky:
            for h in self.held:
                h.back(h.turn, ledger.get((h.epoch, h.number), 0))

    def rest(self, ledger: Ledger, epochs: int, stream: bool) -> Ledger:
        """Return a ledger without the first epochs, and note the lengths of their shards.

        The state has all records of these epochs, but this rank may not have the ends of all shards:
        those without records in a round are lost with a world.
        """
        ended = {key: count(done) for key, done in sorted(ledger.items()) if stream and key[0] < epochs}
        self.counted += sum(ended.values())
        self.lengths = {**self.lengths, **{number: n for (_, number), n in ended.items()}}
        return {k: done for k, done in ledger.items() if k[0] >= epochs}

    def void(self, floor: int) -> None:
        """Drop the leases with an id below ``floor``: they are settled or void."""
        self._floor = max(self._floor, floor)
        with self._lock:
            self.held = [h for h in self.held if h.id >= self._floor]
