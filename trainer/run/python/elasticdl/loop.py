"""Runs a training function again in each new world, in the same process."""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable, Optional, TypeVar

from . import saving
from .doubt import Error, WorldChanged
from .group import World
from .session import current, start
from .states import State

T = TypeVar("T")


def init(backend: str = "gloo") -> World:
    """Joins the job and returns the first world; it takes the place of
    ``torch.distributed.init_process_group``.

    Without an agent (no ``ELASTICDL_SOCKET``) the world is this process alone.
    """
    session = start(backend)
    if saving.declared is not None:
        saving.declared.resume(session)
        session.on_commit.append(saving.after_round)
        session.on_end = saving.before_end
    session.form()
    return session.world


def world() -> World:
    """Return the present world; it changes only where ``WorldChanged`` may be raised."""
    return current().world


def leaving() -> Optional[float]:
    """Returns when this process will be taken away, in seconds since the epoch; None if it is not
    known to be."""
    return current().leaving()


def run(train: Callable[..., T]) -> Callable[..., T]:
    """Calls ``train(state, …)`` again after each change of the world, once the state is that of the
    newest rank.

    It runs once: when it returns, the process needs no further world.
    """

    @functools.wraps(train)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> T:
        session = current()
        if session.thread:
            raise Error("one function under @elasticdl.run is called, once: put all phases of the training into it")
        session.thread = threading.get_ident()
        saving.state = state
        while True:
            try:
                if not session.synced:
                    state.sync()
                result = train(state, *args, **kwargs)
                saving.after_training()
                session.finish()
                return result
            except WorldChanged:
                pass
            except Exception as e:
                if not session.explains(e):
                    raise
            # The exception and its traceback, which refers to the frames of the loop, are released
            # here.
            session.form()

    return wrapper


class _Step:
    """Ends a round. ``step(loss)``, after ``optimizer.step()``; or ``with step:`` around the work
    of one."""

    def __call__(self, loss: Any = None) -> None:
        """Counts the round and credits the records that were taken since the last one. May raise
        WorldChanged."""
        current().commit(loss)

    def __enter__(self) -> "_Step":
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is None:
            current().commit()


step = _Step()
