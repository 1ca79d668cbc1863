"""Lightning for a job whose processes keep their state when the world changes."""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.environments import ClusterEnvironment
from lightning.pytorch.strategies import DDPStrategy

import elasticdl
from elasticdl.session import current

from .rounds import Plan, Rounds, has_records

#: The name of the checkpoint that is kept in memory.
_MEMORY = "elasticdl-memory"


class _World(ClusterEnvironment):
    """The current world as Lightning asks for it."""

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return "127.0.0.1"

    @property
    def main_port(self) -> int:
        return 0

    @staticmethod
    def detect() -> bool:
        return False

    def world_size(self) -> int:
        return elasticdl.world().size

    def set_world_size(self, size: int) -> None:
        pass

    def global_rank(self) -> int:
        return elasticdl.world().rank

    def set_global_rank(self, rank: int) -> None:
        pass

    def local_rank(self) -> int:
        return elasticdl.world().local_rank

    def node_rank(self) -> int:
        return 0


class ElasticStrategy(DDPStrategy):
    """A strategy for :func:`fit`: gradients are averaged by elasticdl, in worlds that change.

    Construct it after ``elasticdl.init()``.
    """

    def __init__(self) -> None:
        current()
        super().__init__(cluster_environment=_World())
        self.rounds: Optional[Rounds] = None
        #: checkpoint with which the next fit begins, or that was saved last
        self.memory: Optional[Dict[str, Any]] = None
        #: an update was made that has not ended a round
        self.updated = False
        self._alone = False

    @property
    def root_device(self) -> torch.device:
        devices = self.parallel_devices
        assert devices
        device: torch.device = devices[self.local_rank % len(devices)]
        return device

    @property
    def distributed_sampler_kwargs(self) -> Dict[str, Any]:
        return {"num_replicas": self.world_size, "rank": self.global_rank}

    def configure_ddp(self) -> None:
        model: Any = self.model
        self.model: Any = elasticdl.DistributedDataParallel(model)

    @contextlib.contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        with self.model.no_sync():
            yield

    def backward(self, closure_loss: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not has_records():
            # It must not count in an accumulation, either.
            closure_loss = closure_loss * 0
        result: torch.Tensor = super().backward(closure_loss, *args, **kwargs)
        return result

    def optimizer_step(self, *args: Any, **kwargs: Any) -> Any:
        result = super().optimizer_step(*args, **kwargs)
        self.updated = True
        if self.rounds is not None and self.rounds.closes():
            # Lightning asks for it after the step.
            self.lightning_module.trainer.fit_loop.epoch_loop.batch_progress.is_last_batch = True
        return result

    def barrier(self, *args: Any, **kwargs: Any) -> None:
        if not self._alone:
            super().barrier(*args, **kwargs)

    def dump(self, trainer: Trainer) -> Dict[str, Any]:
        """Return a checkpoint of this rank's training. No other rank takes part."""
        self._alone = True
        try:
            trainer.save_checkpoint(_MEMORY, weights_only=False)
        finally:
            self._alone = False
        assert self.memory is not None
        return self.memory

    def save_checkpoint(self, checkpoint: Dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        if filepath == _MEMORY:
            self.memory = checkpoint
        else:
            super().save_checkpoint(checkpoint, filepath, storage_options)

    def load_checkpoint(self, checkpoint_path: Any, *args: Any, **kwargs: Any) -> Any:
        if checkpoint_path == _MEMORY:
            return self.memory
        return super().load_checkpoint(checkpoint_path, *args, **kwargs)


def fit(
    trainer: Trainer,
    model: LightningModule,
    data: Any,
    batch_size: int,
    shuffle: bool = True,
    workers: int = 0,
    seed: int = 0,
    collate_fn: Optional[Callable[[List[Any]], Any]] = None,
    val_dataloaders: Any = None,
) -> None:
    """Train like ``trainer.fit``, with each record of ``data`` once in each epoch.

    The Trainer has ``strategy=ElasticStrategy()``. ``data`` has ``__len__`` and ``__getitem__``;
    the other arguments are those of :func:`elasticdl.records`. The function may be called once.
    After a loss it continues with the state of the ranks that are left, in a new call of
    ``trainer.fit`` by the same Trainer. The state survives the loss of all ranks by
    ``elasticdl.checkpoint(path)``.

    Raise Error for a Trainer or a module that cannot be followed.
    """
    _check(trainer, model)
    strategy: Any = trainer.strategy
    rounds = strategy.rounds = Rounds(
        Plan(data, batch_size, int(trainer.max_epochs or 1), shuffle, workers, seed, collate_fn)
    )
    kept = _Kept(trainer, model)
    trainer.callbacks.append(_Callback(rounds))

    @elasticdl.run
    def train(state: elasticdl.State) -> None:
        strategy.memory, strategy.updated = kept.take(), False
        rounds.begin()
        _once(trainer, strategy.memory is not None)
        resume = {"ckpt_path": _MEMORY, "weights_only": False} if strategy.memory else {}
        trainer.fit(model, _Loader(trainer, rounds), val_dataloaders, **resume)
        rounds.finish()

    train(elasticdl.State(model=model, trainer=kept))


def _once(trainer: Trainer, begun: bool) -> None:
    """Mark as done, on processes that join a training, what callbacks do once in a process.

    LightningCLI's SaveConfigCallback broadcasts in its first ``setup`` only. The other ranks have
    done that, and take no part.
    """
    kind: Any = getattr(sys.modules.get("lightning.pytorch.cli"), "SaveConfigCallback", ())
    for callback in trainer.callbacks:
        if begun and isinstance(callback, kind):
            callback.already_saved = True


def _release() -> None:
    """Let SIGTERM end the process again, instead of Lightning's handler, which notes the signal only.

    The agent sends it when the state is saved, and would wait for the grace period.
    """
    if type(signal.getsignal(signal.SIGTERM)).__module__.startswith("lightning."):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _check(trainer: Trainer, model: LightningModule) -> None:
    """Raise Error for a Trainer or a module that is not followed here."""
    refused = {
        "Trainer(strategy=…): give ElasticStrategy()": not isinstance(trainer.strategy, ElasticStrategy),
        "max_epochs=%s: give the number of epochs, which all processes declare" % trainer.max_epochs:
            not trainer.max_epochs or trainer.max_epochs < 0,
        "automatic_optimization=False: the end of a round is not known": not model.automatic_optimization,
        "limit_train_batches, overfit_batches and fast_dev_run: each record is trained on; leave them out":
            trainer.limit_train_batches != 1.0 or trainer.overfit_batches or trainer.fast_dev_run,
        "reload_dataloaders_every_n_epochs: there is one data set; leave it out":
            trainer.reload_dataloaders_every_n_epochs,
    }
    for why, found in refused.items():
        if found:
            raise elasticdl.Error("elasticdl.integrations.lightning.fit: " + why)


class _Loader:
    """The training data as Lightning takes them: an iterator for each epoch.

    The number of an epoch's batches is known at its end. The length is the most that it can be.
    """

    def __init__(self, trainer: Trainer, rounds: Rounds) -> None:
        self._trainer, self._rounds = trainer, rounds

    def __len__(self) -> int:
        return len(self._rounds.plan.data) * int(self._trainer.accumulate_grad_batches)

    def __iter__(self) -> Iterator[Any]:
        # The iterator of the first epoch is made before Lightning knows its number.
        self._rounds.epoch = self._trainer.current_epoch
        return iter(self._rounds)


class _Callback(Callback):
    """Ends a round with each step of the optimizer."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._loss: Any = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        _release()
        # Parts of an epoch are of the number of its batches, which is about this one.
        part = trainer.val_check_interval
        if isinstance(part, float):
            batches = self._rounds.rounds() // max(1, self._rounds.plan.epochs)
            trainer.val_check_batch = float("inf") if part == 1.0 else max(1, int(part * batches))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        self._loss = self._loss + loss
        strategy: Any = trainer.strategy
        if strategy.updated:
            strategy.updated = False
            self._rounds.end(self._loss)
            self._loss = 0.0


class _Kept:
    """The part of a Trainer that ranks share, without the weights of its model."""

    def __init__(self, trainer: Trainer, model: LightningModule) -> None:
        self._trainer, self._model = trainer, model
        # the state of another rank
        self._taken: Optional[Dict[str, Any]] = None

    def state_dict(self) -> Dict[str, Any]:
        if self._taken is not None:
            return self._taken
        strategy: Any = self._trainer.strategy
        if strategy.lightning_module is None:
            return {}  # no training has begun
        return {name: value for name, value in strategy.dump(self._trainer).items() if name != "state_dict"}

    def load_state_dict(self, values: Dict[str, Any]) -> None:
        self._taken = values

    def take(self) -> Optional[Dict[str, Any]]:
        """Return the checkpoint with which a training continues, None if it begins."""
        values = self.state_dict()
        self._taken = None
        return dict(values, state_dict=self._model.state_dict()) if values else None
