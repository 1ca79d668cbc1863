"""Accelerate's Accelerator for a job whose processes keep their state when the world changes."""

from __future__ import annotations

from typing import Any, Iterator, Optional

import accelerate
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import send_to_device

import elasticdl
from elasticdl.session import current

from .rounds import has_records


class Accelerator(accelerate.Accelerator):
    """An Accelerator that averages gradients by elasticdl, and follows the changes of the world.

    Construct it after ``elasticdl.init()``, and call ``prepare`` once, for the model, the optimizer
    and the scheduler. Give :class:`elasticdl.State` what they were before. In the function under
    ``@elasticdl.run`` take the batches from :meth:`records`. FSDP, DeepSpeed and fp16 are refused.
    """

    #: whether the batch that is trained on has records of this rank; None: as the one taken last
    counts: Optional[bool] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        current()
        super().__init__(*args, **kwargs)
        self.check_kind()

    def check_kind(self) -> None:
        """Raise Error if this Accelerator trains in a way that is not re-formed in the process."""
        kind = str(self.distributed_type.value)
        if kind not in ("NO", "MULTI_CPU", "MULTI_GPU"):
            raise elasticdl.Error(
                "Accelerator: the distributed type %s is not re-formed in the process: "
                "leave such a script unchanged, without elasticdl.init()" % kind
            )
        if kind == "NO" and current().link is not None:
            raise elasticdl.Error(
                "Accelerator: this machine has no GPU, and without cpu=True (in TrainingArguments: use_cpu=True) "
                "Accelerate lets each process train alone"
            )
        if self.mixed_precision == "fp16":
            raise elasticdl.Error("mixed_precision='fp16': the scale of the loss is not kept; use 'bf16'")

    def enter(self) -> None:
        """Take the rank and the size of the current world, and drop an accumulation that was begun.

        :meth:`records` calls it.
        """
        world = elasticdl.world()
        for state in (PartialState._shared_state, AcceleratorState._shared_state):
            state.update(
                num_processes=world.size, process_index=world.rank, local_process_index=world.local_rank
            )
        self.step = 0
        self.gradient_state._set_sync_gradients(True)

    def records(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Yield the batches of :func:`elasticdl.records`, on the device of this process."""
        self.enter()
        for batch in elasticdl.records(*args, **kwargs):
            yield send_to_device(batch, self.device)

    def backward(self, loss: Any, **kwargs: Any) -> None:
        if not (has_records() if self.counts is None else self.counts):
            # It must not count in an accumulation, either.
            loss = loss * 0
        super().backward(loss, **kwargs)

    def prepare_model(self, model: Any, device_placement: Any = None, evaluation_mode: bool = False) -> Any:
        if isinstance(model, elasticdl.DistributedDataParallel):
            return super().prepare_model(model, device_placement, evaluation_mode)
        # Without torch's DistributedDataParallel.
        model = super().prepare_model(model, device_placement, evaluation_mode=True)
        if evaluation_mode:
            return model
        wrapped = elasticdl.DistributedDataParallel(model)
        self._models[:] = [wrapped if m is model else m for m in self._models]
        return wrapped

    def unwrap_model(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(model, elasticdl.DistributedDataParallel):
            model = model.module
        return super().unwrap_model(model, *args, **kwargs)
