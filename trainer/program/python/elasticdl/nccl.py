"""Makes and aborts NCCL's group, for torch ≥ 2.7 with NCCL ≥ 2.26. On a GPU it was run with one rank only.

A process that uses it is started again when the world changes, unless ``ELASTICDL_NCCL=abort`` is set. Then the
group is aborted from a second thread, all communicators at once, and never flushed: ``destroy_process_group`` would
wait for the dead peer.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist


def survives() -> bool:
    """Reports whether the user asked for re-forming in the process."""
    return os.environ.get("ELASTICDL_NCCL", "") == "abort"


def prepare() -> None:
    """Sets what torch and NCCL read at start: the watchdog must not end the process before it is told."""
    for name, value in (
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"),
        ("TORCH_NCCL_ENABLE_MONITORING", "0"),
        ("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"),
        ("TORCH_NCCL_NONBLOCKING_TIMEOUT", "60"),
        ("NCCL_NVLS_ENABLE", "0"),
    ):
        os.environ.setdefault(name, value)
    if survives():
        os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"  # the agent has torchrun's value there, which ends the process


def make(store: Any, rank: int, size: int) -> Any:
    """Returns NCCL's group; its communicator does not block, so that it can be aborted while it is made."""
    options = dist.ProcessGroupNCCL.Options()
    options.config.blocking = False
    options._timeout = timedelta(minutes=30)
    return dist.ProcessGroupNCCL(store, rank, size, options)


def abort(group: Any) -> None:
    """Ends all that waits in the group, here and on the GPU. Called in a thread of its own; a failure is a doubt."""
    if group is None:
        return
    try:
        group.abort()
    except Exception as e:
        from .session import doubt

        doubt("aborting NCCL's group failed: %s" % e)
