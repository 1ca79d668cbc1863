"""Hugging Face's Trainer for a job whose processes keep their state when the world changes."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Tuple

import torch
import transformers
from transformers.trainer_callback import DefaultFlowCallback, ExportableState

import elasticdl
from elasticdl.session import current

from .accelerate import Accelerator
from .rounds import Plan, Rounds, has_records

#: Methods of Trainer that ElasticTrainer overrides, and that Trainer does not document.
_METHODS = ("_init_training_state", "_prepare_for_training", "_finalize_training")
#: Fields of TrainerState that the ranks share. The others follow from the arguments and the rank.
_FIELDS = (
    "global_step",
    "num_input_tokens_seen",
    "total_flos",
    "log_history",
    "best_metric",
    "best_global_step",
    "best_model_checkpoint",
)


class ElasticTrainer(transformers.Trainer):
    """A Trainer with each record once in each epoch, in worlds that change.

    Call ``elasticdl.init()`` before the TrainingArguments are made. ``train()`` may be called once.
    After a loss it continues with the state of the ranks that are left. The state survives the loss
    of all ranks by ``elasticdl.checkpoint(path)``; checkpoints of Trainer are written as well, and
    not resumed. The learning rate follows the part of the records that is done, so that a change of
    the world's size does not move its end.

    Raise Error for arguments that cannot be followed, and for a Trainer of another version.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        current()
        if not all(hasattr(transformers.Trainer, name) for name in _METHODS):
            raise elasticdl.Error(
                "transformers %s: ElasticTrainer needs a Trainer of version 5 (5.24 was tested)"
                % transformers.__version__
            )
        super().__init__(*args, **kwargs)
        _check(self)
        self.rounds: Any = None
        # of the batches that were taken and not trained on: whether they have records of this rank
        self.real: Deque[bool] = deque()
        self._kept = _Kept(self)
        self.add_callback(_Callback(self))

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        self.accelerator.__class__ = Accelerator
        self.accelerator.check_kind()

    def train(
        self, resume_from_checkpoint: Any = None, trial: Any = None, ignore_keys_for_eval: Optional[List[str]] = None
    ) -> Any:
        if resume_from_checkpoint:
            raise elasticdl.Error(
                "train(resume_from_checkpoint=%r): a checkpoint of Trainer does not name its records: "
                "call elasticdl.checkpoint(path) before elasticdl.init()" % (resume_from_checkpoint,)
            )
        if trial is not None:
            raise elasticdl.Error("train(trial=…): a search of hyperparameters is not supported")
        self.create_optimizer()
        self.rounds = Rounds(self._plan())

        @elasticdl.run
        def train(state: elasticdl.State) -> Any:
            self.accelerator.enter()
            self.rounds.begin()
            self.real.clear()
            return super(ElasticTrainer, self).train(ignore_keys_for_eval=ignore_keys_for_eval)

        return train(elasticdl.State(model=self.model, optimizer=self.optimizer, trainer=self._kept))

    def _plan(self) -> Plan:
        a, data = self.args, self.train_dataset
        if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
            raise elasticdl.Error(
                "train_dataset=%s: ElasticTrainer needs a data set with __len__ and __getitem__" % type(data).__name__
            )
        collate = self.data_collator
        if transformers.utils.is_datasets_available() and hasattr(data, "remove_columns"):
            data = self._remove_unused_columns(data, description="Training")
        else:
            collate = self._get_collator_with_removed_columns(collate, description="Training")
        # Training ends after max_steps. An epoch has a record at least.
        epochs = a.max_steps * self._train_batch_size * a.gradient_accumulation_steps
        if a.max_steps <= 0:
            epochs = int(a.num_train_epochs)
        seed = a.seed if a.data_seed is None else a.data_seed
        shuffle = a.train_sampling_strategy == "random"
        return Plan(data, self._train_batch_size, epochs, shuffle, a.dataloader_num_workers, seed, collate)

    def get_train_dataloader(self) -> Any:
        return _Loader(self)

    def set_initial_training_values(self, args: Any, dataloader: Any) -> Tuple[int, int, int, int, int, int, int]:
        r, batches = self.rounds, args.gradient_accumulation_steps
        size = len(r.plan.data)
        batch = self.get_total_train_batch_size(args)
        steps = args.max_steps if args.max_steps > 0 else -(-r.total // batch)
        # The number of rounds of an epoch is known at its end. Each has a record at least.
        return r.plan.epochs, size, size, steps * batch, batch, size * batches, steps

    def _init_training_state(
        self, max_steps: int, num_update_steps_per_epoch: int, num_train_epochs: int, resume: Any, trial: Any
    ) -> Tuple[int, int]:
        kept = {name: getattr(self.state, name) for name in _FIELDS}
        super()._init_training_state(max_steps, num_update_steps_per_epoch, num_train_epochs, None, trial)
        r, state = self.rounds, self.state
        for name, value in kept.items():
            setattr(state, name, value)
        state.epoch = r.done() / len(r.plan.data)
        if self.args.max_steps <= 0:
            state.max_steps = state.global_step + r.rounds(self.args.gradient_accumulation_steps)
        return num_train_epochs if self._kept.ended else r.done() // len(r.plan.data), 0

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume: Any) -> Tuple[Any, Any]:
        had = self.lr_scheduler
        model, loader = super()._prepare_for_training(max_steps, train_dataloader, None)
        self.accelerator.prepare_model(model)
        part = self.rounds.done() / self.rounds.total
        if self.args.max_steps > 0:
            part = self.state.global_step / self.args.max_steps
        self._kept.move(had, round(part * max_steps))
        return model, loader

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        # Trainer takes all batches of a round before it trains on the first.
        self.accelerator.counts = self.real.popleft()
        loss = super().training_step(model, inputs, num_items_in_batch)
        self.rounds.loss += loss
        return loss

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        result = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if num_items_in_batch is None or not self.counts_items() or not torch.is_grad_enabled():
            return result
        # The loss is divided by the items of all ranks already, and multiplied by their number.
        # Gradients are averaged by records here.
        own, total = current().weights()
        share = total / (own * elasticdl.world().size) if own else 1.0
        return (result[0] * share, result[1]) if return_outputs else result * share

    def counts_items(self) -> bool:
        """Return whether the loss is a mean over the items of the batches of all ranks."""
        has = self.model_accepts_loss_kwargs or self.compute_loss_func is not None
        return bool(self.args.average_tokens_across_devices and has)

    def _finalize_training(self, *args: Any, **kwargs: Any) -> Any:
        self._kept.ended = True
        self.rounds.finish()
        return super()._finalize_training(*args, **kwargs)


def _check(trainer: Any) -> None:
    """Raise Error for arguments of the Trainer that are not followed here."""
    a = trainer.args
    refused = {
        "group_by_length and batch_rebalance: use train_sampling_strategy=\"random\" or \"sequential\"":
            a.train_sampling_strategy not in ("random", "sequential"),
        "dataloader_drop_last=True: each record is trained on; leave it out": a.dataloader_drop_last,
        "split_batches and dispatch_batches: each process takes its own batches; leave them out":
            a.accelerator_config.split_batches or a.accelerator_config.dispatch_batches,
        "auto_find_batch_size=True: set per_device_train_batch_size": a.auto_find_batch_size,
        "enable_jit_checkpoint=True: elasticdl.checkpoint(path) is written before a planned stop; leave it out":
            a.enable_jit_checkpoint,
        "a fractional num_train_epochs: give a whole number, or max_steps":
            a.max_steps <= 0 and a.num_train_epochs != int(a.num_train_epochs),
        "model_init: give model": trainer.model_init is not None,
        "%d GPUs in one process: start one process for each, by --nproc_per_node" % a.n_gpu: a.n_gpu > 1,
    }
    for why, found in refused.items():
        if found:
            raise elasticdl.Error("ElasticTrainer: " + why)


class _Loader:
    """The training data as Trainer takes them: an iterator for each epoch."""

    def __init__(self, trainer: ElasticTrainer) -> None:
        self._trainer = trainer
        self.dataset = trainer.rounds.plan.data

    def __len__(self) -> int:
        plan: Plan = self._trainer.rounds.plan
        return math.ceil(len(plan.data) / (plan.batch_size * elasticdl.world().size))

    def set_epoch(self, epoch: int) -> None:
        self._trainer.rounds.epoch = epoch

    def __iter__(self) -> Any:
        trainer = self._trainer
        for batch in trainer.rounds:
            trainer.real.append(has_records())
            if not trainer.real[-1] and trainer.counts_items():
                # Its items do not count. It is the object of an earlier batch.
                labels = [name for name in ("labels", "shift_labels") if name in batch]
                batch = {**batch, **{name: torch.full_like(batch[name], -100) for name in labels}}
            yield batch


class _Callback(transformers.TrainerCallback):
    """Ends a round with each step of the optimizer, and epochs with their last record."""

    def __init__(self, trainer: ElasticTrainer) -> None:
        self._trainer = trainer

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._trainer.rounds.loss = 0.0
        if args.max_steps <= 0:
            # It is an estimate, which must not end the training.
            state.max_steps = max(state.max_steps, state.global_step + 2)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        r = self._trainer.rounds
        r.end(r.loss)
        done = r.done()
        state.epoch = done / len(r.plan.data)
        control.should_epoch_stop = control.should_epoch_stop or r.whole()
        if done >= r.total:
            state.max_steps = state.global_step
            DefaultFlowCallback().on_step_end(args, state, control)


class _Kept:
    """The part of a Trainer that ranks share, in addition to its model and optimizer."""

    def __init__(self, trainer: ElasticTrainer) -> None:
        self._trainer = trainer
        self.ended = False
        # state of the scheduler of another rank
        self._scheduler: Any = None
        self._fields: Dict[str, Any] = {}

    def state_dict(self) -> Dict[str, Any]:
        t = self._trainer
        callbacks = [c for c in t.callback_handler.callbacks if isinstance(c, ExportableState)]
        return {
            "ended": self.ended,
            "state": {name: getattr(t.state, name) for name in _FIELDS},
            "callbacks": [c.state().get("attributes", {}) for c in callbacks],
            "scheduler": self._scheduler or (t.lr_scheduler and t.lr_scheduler.state_dict()),
        }

    def load_state_dict(self, values: Dict[str, Any]) -> None:
        t = self._trainer
        self.ended, self._scheduler = values["ended"], values["scheduler"]
        for name, value in values["state"].items():
            setattr(t.state, name, value)
        callbacks = [c for c in t.callback_handler.callbacks if isinstance(c, ExportableState)]
        for callback, attributes in zip(callbacks, values["callbacks"]):
            for name, value in attributes.items():
                setattr(callback, name, value)

    def move(self, had: Any, position: int) -> None:
        """Move the scheduler of this world to a position, or to the state of the one before.

        A scheduler that Trainer made of the number of steps is a function of the position. ``had``
        is the scheduler of the world before, None if there was none.
        """
        t, known = self._trainer, self._scheduler
        scheduler = t.lr_scheduler
        self._scheduler = None
        if t._created_lr_scheduler and isinstance(scheduler, torch.optim.lr_scheduler.LambdaLR):
            scheduler.last_epoch = position
            for group, rate in zip(scheduler.optimizer.param_groups, scheduler.get_lr()):
                group["lr"] = rate
            scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]
        elif known is not None:
            scheduler.load_state_dict(known)
        elif had is not None and had is not scheduler:
            scheduler.load_state_dict(had.state_dict())
