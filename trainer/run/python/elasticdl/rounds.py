"""Rounds, and the agreement of all ranks on which records are in the model after each.

A round is one update of the model. In addition to gradients the ranks gather a small table of fixed
size, the *header*: how many records each rank brings, which ones, whether it was asked to leave,
and whether it has no more records. The header is gathered before the gradients are. So a rank that
has the gradients of a round knows which records of every rank, also of a lost one, are in the model
after it.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch

from .spent import PEERS

#: Flags of a rank: it was asked to leave, has no more records, makes this round in any case, stops
#: after this round with its job, will be ended soon, and asks all to save sharded state, or could
#: not write its part of a checkpoint when that was due, and asks the others to write theirs again.
LEAVE, ENDED, STEPS, STOP, SAVE, AGAIN = 1, 2, 4, 8, 16, 32
#: Maximum number of credits in one header. Further headers of the same round have the others.
RANGES = 16
_FIXED = 3
_WIDTH = _FIXED + 4 * RANGES


class Credit(NamedTuple):
    """A range of records of one task: [``first``, ``last``) in the order of the task.

    ``last`` has ``END`` added if the range has the end of a shard of unknown length.
    """

    epoch: int
    number: int
    first: int
    last: int


#: Added to the number of records of a shard of unknown length when its end was read: ``END + n`` is
#: the count of all ``n`` records of the shard, ``n`` that of its first ones.
END = 1 << 40


def count(n: int) -> int:
    """Return the number of records of a count that may have the end of a shard."""
    return n - END if n >= END else n


#: Largest loss that the agent reads, as a float32.
_LARGEST = 3.4e38


def reported(loss: Any) -> Optional[float]:
    """Return the loss to report to the agent; None if there is none, or it is not finite."""
    if loss is None:
        return None
    value = float(loss.detach() if hasattr(loss, "detach") else loss)
    # False for NaN
    return value if abs(value) <= _LARGEST else None


# (epoch, task) → count of records, from the task's start, that are in the state
Ledger = Dict[Tuple[int, int], int]


class Header:
    """A table with one row for each rank, gathered or being gathered.

    A row has the rank's flags, its weight (the number of its records), the number of its credits,
    and at most ``RANGES`` credits.
    """

    def __init__(self, group: Any, flags: int, weight: int, credits: List[Credit]) -> None:
        row = [flags, weight, len(credits)]
        for c in credits:
            row.extend(c)
        row.extend([0] * (_WIDTH - len(row)))
        mine = torch.tensor(row, dtype=torch.int64)
        self.weight = weight
        self._work: Any = None
        self._group = group
        if group.size == 1:
            self._table = mine.unsqueeze(0)
        else:
            self._table = torch.empty(group.size, _WIDTH, dtype=torch.int64)
            self._work = group.gloo.allgather([list(self._table.unbind(0))], [mine])
            self._mine = mine  # must outlive the operation
        self._rows: List[List[int]] = []

    def rows(self) -> List[List[int]]:
        """Wait for the table and return it, one row for each rank.

        Raise RuntimeError if a rank is lost.
        """
        if not self._rows:
            if self._work is not None:
                with PEERS:
                    self._group.wait(self._work)
                    self._group.agree()
                self._work = None
            self._rows = self._table.tolist()
        return self._rows

    @property
    def gathered(self) -> bool:
        """Whether the rows are here."""
        return bool(self._rows)

    def total(self) -> int:
        """Return the number of records of all ranks."""
        return sum(row[1] for row in self.rows())

    def any(self, flag: int) -> bool:
        return any(row[0] & flag for row in self.rows())

    def all(self, flag: int) -> bool:
        return all(row[0] & flag for row in self.rows())

    def credits(self) -> List[Credit]:
        found = []
        for row in self.rows():
            for i in range(row[2]):
                at = _FIXED + 4 * i
                found.append(Credit(*row[at:at + 4]))
        return found


def enter(ledger: Ledger, credits: List[Credit], settled: int) -> str:
    """Enter the credits of a round into the ledger; return why they are impossible, or "".

    The range of a credit must begin where the ledger ends for its task. Otherwise records are
    missing in the model, or are in it twice.
    """
    for c in sorted(credits):
        if c.epoch < settled:
            return "task %d of epoch %d was credited after that epoch was settled" % (c.number, c.epoch)
        had = ledger.get((c.epoch, c.number), 0)
        if had >= END:
            return "records follow on the end of shard %d in epoch %d, after %d" % (c.number, c.epoch, count(had))
        if c.first != had:
            return "records %d to %d of task %d in epoch %d follow on %d" % (c.first, c.last, c.number, c.epoch, had)
        ledger[c.epoch, c.number] = c.last
    return ""
