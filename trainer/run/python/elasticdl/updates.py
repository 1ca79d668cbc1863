"""Which optimizers have stepped in a round.

A collective of the script's may fail between the update of a round and ``elasticdl.step()``. Then
the records of the round are in the model, and no ``step()`` credits them.
"""

from __future__ import annotations

import functools
import types
import weakref
from typing import Any, Callable, Iterable, Set

import torch


class Updates:
    """The optimizers of a State, and those that have stepped since the round's last gradients."""

    def __init__(self) -> None:
        self._watched: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self._stepped: Set[int] = set()
        # those of the last round in which one has; none: there was no such round
        self._usual: Set[int] = set()

    def watch(self, members: Iterable[Any]) -> None:
        """Note from now on when these optimizers step; other members are ignored."""
        for m in members:
            if isinstance(m, torch.optim.Optimizer) and m not in self._watched:
                self._watched.add(m)
                setattr(m, "step", types.MethodType(_noted(m.step, self._stepped), m))

    def reopen(self) -> None:
        """Note that the round takes further records or gradients, which are in no update yet."""
        self._stepped.clear()

    def applied(self) -> bool:
        """Return whether all optimizers that step in a round have stepped in this one."""
        return bool(self._stepped) and self._stepped >= (self._usual or {id(m) for m in self._watched})

    def close(self) -> None:
        """Note that the round has ended, or was given up."""
        self._usual = set(self._stepped) or self._usual
        self._stepped.clear()


def _noted(step: Callable[..., Any], stepped: Set[int]) -> Callable[..., Any]:
    """Return a method for an optimizer that steps, and notes it. A copy of the optimizer has it, too.

    It has the attributes of the optimizer's own, by which a scheduler knows that it counts steps.
    """
    function = getattr(step, "__func__", None)  # None: a scheduler has replaced the method

    @functools.wraps(step)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = step(*args, **kwargs) if function is None else function(self, *args, **kwargs)
        stepped.add(id(self))
        return result

    return method
