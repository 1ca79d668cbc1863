"""A controller that runs the training steps of a script elastically, with ElasticDL's interface."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import elasticdl
from elasticdl import session as sessions
from elasticdl.feeding import REST
from elasticdl.leases import Lease
from elasticdl.rounds import ENDED, LEAVE, STOP, Credit

from ..common.blocks import Block, admit, early, ledger
from ..common.data_shard_service import RecordIndexService
from .optimizer import _Distributed


_Pass = Tuple[Callable[..., Any], Tuple[Any, ...], Dict[str, Any], Optional[Block]]


class PyTorchAllReduceController:
    """A controller that repeats a training step if the world changes during it.

    Its arguments are ``(data_shard_service)`` or ``(master_client, data_shard_service)``, as in
    ElasticDL's versions.
    """

    def __init__(self, *services: Any, data_shard_service: Any = None, master_client: Any = None) -> None:
        if data_shard_service is None and not services:
            raise TypeError("PyTorchAllReduceController: give it a RecordIndexService or a DataShardService")
        self.data_shard_service = data_shard_service if data_shard_service is not None else services[-1]
        self._model: Any = None
        self._optimizer: Any = None
        self._state: Optional[elasticdl.State] = None
        self._passes: List[_Pass] = []
        self._last: Optional[_Pass] = None
        # number of records of each of the current passes
        self._weights: List[int] = []
        # number of minibatches in the epochs before the resumed one
        self._begun = 0
        self.data_shard_service.join()
        self.data_shard_service._controller = self
        sessions.current().book.sticky = True

    def set_broadcast_model(self, model: Any) -> None:
        self._model = model

    def set_broadcast_optimizer(self, optimizer: Any) -> None:
        if not isinstance(optimizer, _Distributed):
            raise elasticdl.Error(
                "set_broadcast_optimizer(): the optimizer does not average its gradients: give DistributedOptimizer(optimizer)"
            )
        self._optimizer = optimizer

    def set_resume_epoch(self, epoch: int) -> None:
        """Set the epoch from which to count.

        In a world whose workers have trained already, their count replaces it.
        """
        self._begun = epoch * self.data_shard_service.get_minibatch_count_per_epoch()
        if self._state is not None:
            self._state.completed = self._begun

    def init_horovod_locally(self) -> None:
        """Do nothing: there is no Horovod."""

    @property
    def global_batch_num_per_step(self) -> int:
        """The number of minibatches that make one update."""
        if getattr(self._optimizer, "fixed_global_batch_size", False):
            return max(int(self._optimizer.global_batch_num_per_step), elasticdl.world().size)
        return elasticdl.world().size

    @property
    def backward_passes_per_step(self) -> int:
        """The number of this worker's minibatches in one update; low ranks take the remainder."""
        world = elasticdl.world()
        each, odd = divmod(self.global_batch_num_per_step, world.size)
        return each + (world.rank < odd)

    def reset_backward_passes_per_step(self) -> None:
        """Do nothing: the number follows from the world."""

    @property
    def global_completed_batch_num(self) -> int:
        return int(self._state.completed) if self._state is not None else self._begun

    def get_current_epoch(self) -> int:
        per_epoch = self.data_shard_service.get_minibatch_count_per_epoch()
        return self.global_completed_batch_num // per_epoch if per_epoch else 0

    def broadcast(self) -> None:
        """Copy model, optimizer and count from the worker that has the newest, once in each world.

        The source is rank 0 if no worker has trained. If all workers have the same state already,
        nothing is copied. ``elastic_run`` does the same, so a script need not call this method.
        """
        session, state = sessions.current(), self._members()
        while not session.synced:
            try:
                state.sync()
            except elasticdl.WorldChanged:
                session.form()
            except Exception as e:
                if not session.explains(e):
                    raise
                session.form()

    def restore(self) -> None:
        """Drop the gradients that are in no update, and make sure that the state is the newest.

        If a member of this world is lost, wait for the next world first. ``elastic_run`` does the
        same, so a script need not call this method.
        """
        self._members()
        self._optimizer._forget()
        self._optimizer.zero_grad()
        session = sessions.current()
        if session.recalled():
            session.form()
        self.broadcast()

    def train_one_batch_with_retries(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Train on one minibatch as ``elastic_run(func)`` does, and credit its records."""
        return self.elastic_run(func)(*args, **kwargs)

    def notify_train_loop_start(self) -> None:
        """Do nothing: the first minibatch reports the start."""

    def notify_train_loop_end(self) -> None:
        """Take part in rounds, without records, until all workers have ended their loops."""
        session = sessions.current()
        while not session.over:
            self._round(self._filler, None)
        session.finish()

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Return a context manager that encloses the training loop.

        After the loop this worker takes part in rounds, without records, until all workers have
        ended their loops.
        """
        self.notify_train_loop_start()
        yield
        self.notify_train_loop_end()

    def elastic_run(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``func``, which trains on one minibatch, to repeat it when the world changes.

        With a fixed global batch, the minibatches of an update run when the last of them is passed
        to the wrapper. The wrapper returns the result of ``func`` for that minibatch, and None for
        the others.
        """

        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            session = sessions.current()
            self._members()
            self._passes.append((func, args, kwargs, self.data_shard_service.next_block()))
            if session.over or len(self._passes) < self.backward_passes_per_step:
                self._optimizer._update = False
                return None
            passes = self._passes
            self._passes, self._last = [], passes[-1]
            return self._round(lambda: self._run(passes), [p[3] for p in passes])

        return wrapper

    def _members(self) -> elasticdl.State:
        if self._state is None:
            if self._model is None or self._optimizer is None:
                raise elasticdl.Error("call set_broadcast_model() and set_broadcast_optimizer() before the training")
            self._state = elasticdl.State(completed=self._begun, model=self._model, optimizer=self._optimizer)
        return self._state

    def _lease(self) -> Optional[Lease]:
        """Return a lease, None at the end.

        While other workers have the remaining records, take part in their rounds.
        """
        session = sessions.current()
        while True:
            lease = session.book.whole(session.pending, ledger(session), early(session))
            if lease is not None or session.book.ended or session.over:
                return lease
            before = session.round
            self._round(self._filler, [])
            if session.round == before:
                time.sleep(REST)

    def _round(self, work: Callable[[], Any], blocks: Optional[List[Any]]) -> Any:
        """Make one update, and repeat it if the world changes before it is complete.

        ``blocks`` has a block for each minibatch; None: this worker has no more records. Return the
        result of ``work``; None if no worker has records for the round.
        """
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
        """Open the round; return False if no worker has records for it."""
        admitted = admit(blocks or [])
        self._weights = [sum(c.last - c.first for c in mine) for mine in admitted]
        credits: Dict[Tuple[int, int], Credit] = {}
        for c in (c for mine in admitted for c in mine):  # ranges of a task are adjacent
            before = credits.setdefault((c.epoch, c.number), c)
            credits[c.epoch, c.number] = before._replace(last=c.last)
        header = session.gathered(session.begin(sum(self._weights), tuple(credits.values()), ended=blocks is None))
        if header.total() > 0:
            return True
        session.drop()
        if header.all(ENDED):
            session.over = True
        if header.any(STOP):
            session.rest()
        session.check(header.any(LEAVE))
        return False

    def _run(self, passes: List[Any]) -> Any:
        result = None
        self._optimizer._forget()
        for i, (func, args, kwargs, _) in enumerate(passes):
            self._optimizer._weight, self._optimizer._update = self._weights[i], i == len(passes) - 1
            result = func(*args, **kwargs)
        return result

    def _filler(self) -> None:
        """Repeat this worker's last minibatch, to apply the gradients of the other workers.

        The minibatch has weight 0. The script handles the averaged gradients here as elsewhere. A
        worker that has had no minibatch applies them by ``optimizer.step()`` alone.
        """
        self._optimizer._forget()
        if self._last is not None:
            self._weights = [0]
            self._run([self._last])
            return
        self._optimizer._weight, self._optimizer._update = 0, True
        self._optimizer.step()


AllReduceController = PyTorchAllReduceController


def create_elastic_controller(batch_size: int, num_epochs: Optional[int] = None, dataset_size: Optional[int] = None,
                              shuffle: bool = False, num_minibatches_per_shard: int = 0) -> PyTorchAllReduceController:
    """Return a controller with a RecordIndexService."""
    return PyTorchAllReduceController(
        RecordIndexService(
            None,
            batch_size,
            num_epochs,
            dataset_size,
            shuffle=shuffle,
            num_minibatches_per_shard=num_minibatches_per_shard,
        )
    )
