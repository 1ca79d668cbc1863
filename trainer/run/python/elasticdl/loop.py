"""The functions of a training loop that is called again in each new world, in the same process."""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable, Optional, TypeVar, Union

from . import origin, saving, shards
from .doubt import Error, WorldChanged
from .group import World, enter_tables
from .session import current, start
from .spent import COMPUTE, FORMING
from .states import State

T = TypeVar("T")


def init(backend: str = "gloo", sharded: Union[bool, str] = False) -> World:
    """Join the job and return the first world, instead of torch.distributed.init_process_group.

    A newcomer to a job that trains joins in the function under :func:`run`, so that the others do
    not wait until its model is made. Until then its ``formation`` is 0, its rank and size are those
    that it would have now, and collectives raise Error, except for barriers.

    ``backend`` is "gloo" or "nccl". ``sharded``: each rank has a part of the State (``fully_shard``
    of torch 2.6 or newer). Then processes are restarted when the world changes, and read the
    checkpoint, which must be declared; a newcomer joins here. ``sharded="worker"``: the processes of
    each worker have a replica of the State, sharded over :func:`worker_mesh`; they survive the loss
    of other workers.

    Without an agent (no ``ELASTICDL_SOCKET``) the world is this process alone. Raise Error if it was
    called before, or if the backend cannot be used.
    """
    origin.check()
    declared = saving.declared
    shards.check(backend, sharded, declared is not None)
    session = start(backend, sharded)
    if declared is not None:
        declared.resume(session)
        session.look = declared.look
        session.read_shards = functools.partial(declared.read_shards, session)
        session.on_commit.append(saving.after_round)
        session.on_end = saving.before_end
        session.owes = functools.partial(declared.owes, session)
        session.on_restart = saving.before_restart
    session.begins(1)
    session.form(early=not session.sharded)  # a sharded model is made of the world's groups
    if session.replica is not None and session.group is None:
        session.replica.publish(enter_tables)
    return session.world


def world() -> World:
    """Return the current world. It changes only where ``WorldChanged`` may be raised."""
    return current().world


def leaving() -> Optional[float]:
    """Return until when this process may run, in seconds since the epoch; None if not limited."""
    return current().leaving()


def run(train: Callable[..., T]) -> Callable[..., T]:
    """Decorate a training function, ``train(state, …)``, to be called again in each new world.

    Each call begins with the state of the rank that has the newest. The decorated function can be
    called once: when it returns, the process needs no further world. A second call raises Error.
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
                    with FORMING:
                        state.sync()
                with COMPUTE:
                    result = train(state, *args, **kwargs)
                saving.after_training()
                session.agree()
                session.finish()
                return result
            except WorldChanged:
                pass
            except Exception as e:
                if not session.explains(e):
                    raise
            # The exception and its traceback, which refers to the frames of the loop, are released
            # here.
            with FORMING:
                session.form()

    return wrapper


class _Step:
    """The end of a round.

    Call ``step(loss)`` after ``optimizer.step()``, or use ``with step:`` around the work of a
    round.
    """

    def __call__(self, loss: Any = None) -> None:
        """Count the round, and credit the records that were taken since the last one.

        Raise WorldChanged if the world ends with this round.
        """
        current().commit(loss)

    def __enter__(self) -> "_Step":
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is None:
            current().commit()


step = _Step()
