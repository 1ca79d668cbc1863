"""Counts rounds, and agrees among all ranks which records are in the model after each.

A round is one update of the model. In addition to gradients the ranks gather a small table of fixed
size, the *header*: how many records each brings, which ones, whether it has been asked to leave,
whether its records are at an end. It is gathered before the gradients are, so a rank that has the
gradients of a round knows what of every rank, the lost ones too, is in the model after it.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Tuple

import torch

#: Of a rank: it was asked to leave, it has no more records, it makes this round in any case, its
#: job stops after this round.
LEAVE, ENDED, STEPS, STOP = 1, 2, 4, 8
#: How many stretches of records one header names. More are named by further headers of the same
#: round.
STRETCHES = 16
_FIXED = 3
_WIDTH = _FIXED + 4 * STRETCHES


class Credit(NamedTuple):
    """Is a stretch of records of one task, [first, last) in the order in which the task's records
    are taken."""

    epoch: int
    number: int
    first: int
    last: int


# (epoch, task) → records from the task's start that are in the state
Ledger = Dict[Tuple[int, int], int]


class Header:
    """Is one gathered table, or one that is being gathered."""

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
        """Waits for the table and returns it, a row for each rank."""
        if not self._rows:
            if self._work is not None:
                self._group.wait(self._work)
                self._work = None
            self._rows = self._table.tolist()
        return self._rows

    def total(self) -> int:
        """Returns the number of records of all ranks."""
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
    """Enters a round's credits into the ledger and returns why they are impossible, "" if they are
    not.

    A stretch must begin where the state's ends: else records are missing in the model, or are in it
    twice.
    """
    for c in sorted(credits):
        if c.epoch < settled:
            return "task %d of epoch %d was credited after that epoch was settled" % (c.number, c.epoch)
        had = ledger.get((c.epoch, c.number), 0)
        if c.first != had:
            return "records %d to %d of task %d in epoch %d follow on %d" % (c.first, c.last, c.number, c.epoch, had)
        ledger[c.epoch, c.number] = c.last
    return ""
