"""Runs each training step of a script elastically, with ElasticDL's interface."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Iterator, List, Optional, Tuple

import elasticdl
from elasticdl import session as sessions
from elasticdl.rounds import ENDED, LEAVE

from ..common.data_shard_service import RecordIndexService


class PyTorchAllReduceController:
    """Takes ``(data_shard_service)`` or ``(master_client, data_shard_service)``, as ElasticDL's versions do."""

    def __init__(self, *services: Any, data_shard_service: Any = None, master_client: Any = None) -> None:
        self.data_shard_service = data_shard_service if data_shard_service is not None else services[-1]
        self._model: Any = None
        self._optimizer: Any = None
        self._state: Optional[elasticdl.State] = None
        self._passes: List[Tuple[Tuple[Any, ...], Any, Any]] = []
        self._resumed = 0
        self.data_shard_service.join()

    def set_broadcast_model(self, model: Any) -> None:
        self._model = model

    def set_broadcast_optimizer(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def set_resume_epoch(self, epoch: int) -> None:
        self._resumed = epoch

    def init_horovod_locally(self) -> None:
        """Does nothing: there is no Horovod."""

    @property
    def global_batch_num_per_step(self) -> int:
        """Returns how many minibatches make one update."""
        if getattr(self._optimizer, "fixed_global_batch_size", False):
            return max(int(self._optimizer.global_batch_num_per_step), elasticdl.world().size)
        return elasticdl.world().size

    @property
    def backward_passes_per_step(self) -> int:
        """Returns how many minibatches of an update are this worker's; low ranks take the odd ones."""
        world = elasticdl.world()
        each, odd = divmod(self.global_batch_num_per_step, world.size)
        return each + (world.rank < odd)

    def reset_backward_passes_per_step(self) -> None:
        """Does nothing: it follows from the world."""

    @property
    def global_completed_batch_num(self) -> int:
        return self._state.completed if self._state is not None else 0

    def get_current_epoch(self) -> int:
        per_epoch = self.data_shard_service.get_minibatch_count_per_epoch()
        return self._resumed + (self.global_completed_batch_num // per_epoch if per_epoch else 0)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Encloses the training loop. After its end this worker takes part in rounds, without records, until all workers have ended theirs."""
        yield
        session = sessions.current()
        while not session.over:
            self._round(lambda: self._nothing(), None)
        session.finish()

    def elastic_run(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Returns ``func``, which trains on one minibatch, so that it is done again when the world changes under it."""

        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            session = sessions.current()
            blocks = getattr(self.data_shard_service, "blocks", None)
            self._passes.append((args, kwargs, blocks.next() if blocks else None))
            if session.over or len(self._passes) < self.backward_passes_per_step:
                return None
            passes = self._passes
            self._passes = []
            return self._round(lambda: self._run(func, passes), [p[2] for p in passes])

        return wrapper

    def _members(self) -> elasticdl.State:
        if self._state is None:
            members = {"model": self._model, "optimizer": self._optimizer}
            self._state = elasticdl.State(completed=0, **{k: v for k, v in members.items() if v is not None})
        return self._state

    def _round(self, work: Callable[[], Any], blocks: Optional[List[Any]]) -> Any:
        """Does one update, again if the world changes before it is done. ``blocks`` None: this worker has no more records."""
        session = sessions.current()
        state = self._members()
        result = None
        while True:
            before = session.round
            try:
                if not session.synced:
                    state.sync()
                    before = session.round
                if not self._begin(session, blocks):
                    return None
                result = work()
                state.completed += self.global_batch_num_per_step
                session.commit()
                return result
            except elasticdl.WorldChanged:
                if session.round > before:
                    session.form()
                    return result
            except Exception as e:
                if not session.explains(e):
                    raise
            session.form()

    def _begin(self, session: Any, blocks: Optional[List[Any]]) -> bool:
        """Opens the round; False if no worker brings records to it."""
        self._weights = []
        credits: List[Any] = []
        for block in blocks or []:
            valid = self.data_shard_service.blocks.credits(block) if block is not None else ()
            self._weights.append(sum(c.last - c.first for c in valid))
            credits += valid
        weight = sum(self._weights)
        if not isinstance(self.data_shard_service, RecordIndexService):
            weight = sum(c.last - c.first for c in session.pending)
            self._weights = [weight] * len(blocks or [])
        header = session.gathered(session.begin(weight, tuple(credits), ended=blocks is None))
        if header.total() > 0:
            return True
        session.drop()
        if header.all(ENDED):
            session.over = True
        session.check(header.any(LEAVE))
        return False

    def _run(self, func: Callable[..., Any], passes: List[Any]) -> Any:
        result = None
        if hasattr(self._optimizer, "_forget"):
            self._optimizer._forget()
        for i, (args, kwargs, _) in enumerate(passes):
            if hasattr(self._optimizer, "_forget"):
                self._optimizer._weight, self._optimizer._update = self._weights[i], i == len(passes) - 1
            result = func(*args, **kwargs)
        return result

    def _nothing(self) -> None:
        """Applies the others' gradients."""
        self._optimizer._forget()
        self._optimizer._weight, self._optimizer._update = 0, True
        self._optimizer.step()


AllReduceController = PyTorchAllReduceController


def create_elastic_controller(batch_size: int, num_epochs: Optional[int] = None, dataset_size: Optional[int] = None,
                              shuffle: bool = False, num_minibatches_per_shard: int = 0) -> PyTorchAllReduceController:
    """Returns a controller with a RecordIndexService."""
    return PyTorchAllReduceController(RecordIndexService(
        None, batch_size, num_epochs, dataset_size, shuffle=shuffle, num_minibatches_per_shard=num_minibatches_per_shard))
