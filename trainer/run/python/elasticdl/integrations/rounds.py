"""The records of a job as epochs and batches of a framework's training loop."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, NamedTuple, Optional

import elasticdl
from elasticdl.session import current


def has_records() -> bool:
    """Return whether the batch of this rank that was taken last has records of its own.

    A rank that has none while others do is handed a batch that it had before. Return True outside
    of a round.
    """
    headers = current().headers
    return not headers or headers[-1].weight > 0


class Plan(NamedTuple):
    """The data set as a framework's loop takes it: the arguments of elasticdl.records()."""

    data: Any
    batch_size: int
    epochs: int
    shuffle: bool = True
    workers: int = 0
    seed: int = 0
    collate: Optional[Callable[[List[Any]], Any]] = None


class Rounds:
    """The batches of one world, and the end of its rounds.

    An epoch ends on all ranks after the same round: when the model has as many records as the
    epochs up to it. While some ranks have records of an epoch, others may take some of the next
    one. ``WorldChanged`` is raised where the loop takes a batch or ends, not by :meth:`end`: so the
    loop logs, evaluates and saves what belongs to a round.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.epoch = 0
        self._batches: Optional[Iterator[Any]] = None
        self._changed: Optional[elasticdl.WorldChanged] = None

    def begin(self) -> None:
        """Begin with the records of a new world, before its first batch."""
        p = self.plan
        self._changed = None
        self._batches = elasticdl.records(
            p.data, p.batch_size, p.epochs, p.shuffle, p.workers, p.seed, collate_fn=p.collate
        )

    def __iter__(self) -> Iterator[Any]:
        """Yield the remaining batches of the current epoch."""
        assert self._batches is not None
        session = current()
        while session.headers or not self.whole():
            self.check()
            try:
                batch = next(self._batches)
            except StopIteration:
                return
            yield batch
        self.check()

    def done(self) -> int:
        """Return the number of records that are in the model, of all epochs."""
        session = current()
        return session.settled * len(self.plan.data) + sum(session.ledger.values())

    @property
    def total(self) -> int:
        return self.plan.epochs * len(self.plan.data)

    def whole(self) -> bool:
        """Return whether the model has the records of the current epoch."""
        return self.done() >= (self.epoch + 1) * len(self.plan.data)

    def closes(self) -> bool:
        """Return whether the round that is open completes the current epoch. All ranks ask."""
        total: int = current().weights()[1]
        return self.done() + total >= (self.epoch + 1) * len(self.plan.data)

    def rounds(self, batches: int = 1) -> int:
        """Return about how many rounds of that many batches the remaining records are."""
        return -(-(self.total - self.done()) // (batches * self.plan.batch_size * elasticdl.world().size))

    def end(self, loss: Any = None) -> None:
        """End a round: its update is done."""
        try:
            elasticdl.step(loss)
        except elasticdl.WorldChanged as e:
            self._changed = e

    def check(self) -> None:
        """Raise WorldChanged if the world has ended with a round."""
        if self._changed is not None:
            raise self._changed

    def finish(self) -> None:
        """Raise WorldChanged if the world has ended, after the last round of the training.

        All ranks meet again if all records are in the model: so they know that all have them.
        """
        self.check()
        if self.done() >= self.total and self._batches is not None:
            next(self._batches, None)
