"""Optimizers that average their gradients over the global batch.

With a fixed global batch of W minibatches each of n workers does W/n backward passes between two
updates, and the update is the mean of all W. ElasticDL's own optimizer divides by n instead, so its
learning rate changes in effect with the number of workers.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Iterator, List, Optional

import torch

import elasticdl
from elasticdl import session as sessions

from ..util.log_utils import warn_once


class _Distributed:
    """The part of an averaging optimizer that is added to the class of the given one."""

    fixed_global_batch_size = False
    backward_passes_per_step = 1
    # number of records of the current pass, 0 for a filler; None: there is no controller
    _weight: Optional[int] = None
    _update = True  # this pass ends with an update
    # synchronize() has been called for the step() that follows
    _ready = False
    _sums: List[Optional[torch.Tensor]]
    _brought = 0
    _passes = 0

    def _all(self) -> List[torch.nn.Parameter]:
        return [p for g in self.param_groups for p in g["params"]]  # type: ignore[attr-defined]

    def _forget(self) -> None:
        self._sums, self._brought, self._ready = [None] * len(self._all()), 0, False

    @property
    def update_gradients(self) -> bool:
        """Whether the last minibatch ended with an update.

        Without a fixed global batch each minibatch does.
        """
        return self._update

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Set the number of this worker's minibatches in one update, for a fixed global batch.

        It has no effect with a controller, which knows the number from the world. Raise ValueError
        if it is below 1.
        """
        if passes < 1:
            raise ValueError("backward_passes_per_step=%d: it must be at least 1" % passes)
        self.backward_passes_per_step = passes

    def _average(self) -> None:
        """Add up the gradients of a pass; with the last pass of an update, average them."""
        parameters = self._all()
        weight, records = self._weight, None
        if weight is None and self.fixed_global_batch_size:
            self._passes += 1
            weight, self._update = 1, self._passes % self.backward_passes_per_step == 0
        if weight is not None:
            for i, p in enumerate(parameters):
                if p.grad is not None and weight:
                    more = p.grad.detach() * weight
                    self._sums[i] = more if self._sums[i] is None else self._sums[i] + more
                p.grad = None
            self._brought += weight
            if not self._update:
                return
            for p, total in zip(parameters, self._sums):
                p.grad = None if total is None else total / self._brought
            if self._weight is None and sessions._session is not None and not sessions._session.book.used:
                records = self._brought
            self._forget()
        if sessions._session is not None:
            elasticdl.allreduce_gradients(parameters, records)

    def synchronize(self) -> None:
        """Average the gradients before step(), so that a script can change them, such as clip them.

        step() does not average them again.
        """
        self._average()
        self._ready = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Return a context manager that encloses the step() after synchronize().

        It raises elasticdl.Error if synchronize() was not called before.
        """
        if not self._ready:
            raise elasticdl.Error(
                "skip_synchronize(): call synchronize() before, or the workers' models become different"
            )
        yield

    def step(self, closure: Any = None) -> Any:
        """Apply the averaged gradients.

        With a fixed global batch, only the last pass of an update does so.
        Raise elasticdl.Error for a closure: the gradients that it computes would not be averaged.
        """
        if closure is not None:
            raise elasticdl.Error(
                "step(closure): the gradients that a closure computes would not be averaged; call loss.backward(), then step()"
            )
        if not self._ready:
            self._average()
        self._ready = False
        return super().step() if self._update else None  # type: ignore[misc]


def DistributedOptimizer(optimizer: torch.optim.Optimizer, named_parameters: Any = None, compression: Any = None,
                         backward_passes_per_step: int = 1, op: Any = None, gradient_predivide_factor: float = 1.0,
                         global_batch_num_per_step: Optional[int] = None, fixed_global_batch_size: bool = False) -> Any:
    """Return the optimizer as one that averages its gradients over the global batch.

    ``named_parameters`` is only checked, because nothing is found by name; ValueError reports wrong
    names. ``gradient_predivide_factor`` has no effect on a mean. ``compression`` and an ``op``
    other than the average raise elasticdl.Error. ``global_batch_num_per_step`` is by default the
    environment's WORKER_NUM. The result and ``optimizer`` share their attributes.
    """
    if compression is not None and getattr(compression, "__name__", "") != "NoneCompressor":
        raise elasticdl.Error("compression=%r: gradients are not compressed; leave it out" % (compression,))
    if op not in (None, 0):  # Horovod's Average is 0
        raise elasticdl.Error(
            "op=%r: gradients are averaged; leave it out, and for a sum multiply the learning rate" % (op,)
        )
    if gradient_predivide_factor != 1.0:
        warn_once("gradient_predivide_factor=%g has no effect: the mean is the same" % gradient_predivide_factor)
    if named_parameters is not None:
        _check_names(optimizer, list(named_parameters))
    kind = type(optimizer)
    made: Any = object.__new__(type(kind.__name__, (_Distributed, kind), {}))
    made.__dict__ = optimizer.__dict__
    # A scheduler that was made before has set this attribute to the original class's step().
    made.__dict__.pop("step", None)
    made._forget()
    made.fixed_global_batch_size = fixed_global_batch_size
    made.global_batch_num_per_step = global_batch_num_per_step or int(os.environ.get("WORKER_NUM", "1"))
    made.set_backward_passes_per_step(backward_passes_per_step)
    return made


def _check_names(optimizer: torch.optim.Optimizer, named: List[Any]) -> None:
    """Raise ValueError for names that ElasticDL's own optimizer refuses."""
    if any(not isinstance(n, tuple) or len(n) != 2 for n in named):
        raise ValueError("named_parameters: expected pairs of name and parameter, such as model.named_parameters()")
    names = [name for name, _ in named]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError("named_parameters: %s is there more than once" % ", ".join(twice))
    known = {id(p) for _, p in named}
    if any(id(p) not in known for g in optimizer.param_groups for p in g["params"]):
        raise ValueError(
            "named_parameters: the optimizer has parameters that are not among them; give all, or leave it out"
        )
