"""Makes any optimizer average its gradients over the global batch.

With a fixed global batch of W minibatches each of n workers does W/n backward passes between two updates, and the update
is the mean of all W. ElasticDL's own divides by n instead, so its learning rate drifts as workers come and go.
"""

from __future__ import annotations

import os
from typing import Any, List, Optional

import torch

import elasticdl
from elasticdl import session as sessions


class _Distributed:
    """Is mixed into the class of the optimizer."""

    _weight: Optional[int] = None  # of the pass that is on, 0 for a filler; None: nobody says
    _update = True  # this pass ends with an update
    _sums: List[Optional[torch.Tensor]]
    _brought = 0

    def _all(self) -> List[torch.nn.Parameter]:
        return [p for g in self.param_groups for p in g["params"]]  # type: ignore[attr-defined]

    def _forget(self) -> None:
        self._sums, self._brought = [None] * len(self._all()), 0

    def step(self, closure: Any = None) -> Any:
        """Adds the gradients of a pass up; with the last pass of an update, averages them and applies them."""
        parameters = self._all()
        if self._weight is not None:
            for i, p in enumerate(parameters):
                if p.grad is not None and self._weight:
                    more = p.grad.detach() * self._weight
                    self._sums[i] = more if self._sums[i] is None else self._sums[i] + more
                p.grad = None
            self._brought += self._weight
            if not self._update:
                return None
            for p, total in zip(parameters, self._sums):
                p.grad = None if total is None else total / self._brought
            self._forget()
        if sessions._session is not None:
            elasticdl.allreduce_gradients(parameters)
        return super().step(closure)  # type: ignore[misc]


def DistributedOptimizer(optimizer: torch.optim.Optimizer, named_parameters: Any = None, compression: Any = None,
                         backward_passes_per_step: int = 1, op: Any = None, gradient_predivide_factor: float = 1.0,
                         global_batch_num_per_step: Optional[int] = None, fixed_global_batch_size: bool = False) -> Any:
    """Returns the optimizer as one that averages; ``compression``, ``op`` and the factor are accepted and ignored."""
    kind = type(optimizer)
    made: Any = object.__new__(type(kind.__name__, (_Distributed, kind), {}))
    made.__dict__ = optimizer.__dict__
    made._forget()
    made.fixed_global_batch_size = fixed_global_batch_size
    made.global_batch_num_per_step = global_batch_num_per_step or int(os.environ.get("WORKER_NUM", "1"))
    made.backward_passes_per_step = backward_passes_per_step
    return made
