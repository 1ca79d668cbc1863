"""Makes and aborts NCCL's group, for torch ≥ 2.7; aborting needs NCCL ≥ 2.26 besides. On a GPU it
was run with one rank only.

A process that uses it is started again when the world changes, unless ``ELASTICDL_NCCL=abort`` is
set. Then the group is aborted from a second thread, all communicators at once, and never flushed:
``destroy_process_group`` would wait for the dead peer.
"""

from __future__ import annotations

import os
import re
import sys
from datetime import timedelta
from typing import Any, Optional, Tuple

import torch
import torch.distributed as dist

from .doubt import Error

#: The oldest torch whose groups can be made here, and the oldest NCCL whose groups can be aborted.
TORCH, NCCL = (2, 7), (2, 26)


def check() -> None:
    """Raises Error if no group of NCCL's can be made with this torch on this machine."""
    if torch_version() < TORCH:
        raise Error(
            "init(backend=\"nccl\") needs torch 2.7 or newer, and this is torch %s: install a newer one, or call init(\"gloo\")"
            % torch.__version__
        )
    if not dist.is_nccl_available():
        raise Error(
            "init(backend=\"nccl\"): torch %s was built without NCCL: install one with CUDA, or call init(\"gloo\")"
            % torch.__version__
        )
    if not torch.cuda.is_available():
        raise Error(
            "init(backend=\"nccl\"): this process sees no GPU: give the worker one, look at CUDA_VISIBLE_DEVICES, or call init(\"gloo\")"
        )


def torch_version() -> Tuple[int, ...]:
    """Returns torch's version as far as the second number: (2, 7) of 2.7.0a0+cu126."""
    found = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def version() -> Optional[Tuple[int, ...]]:
    """Returns the version of NCCL that torch uses, None if it does not tell."""
    try:
        return tuple(int(n) for n in torch.cuda.nccl.version()[:3])
    except (AttributeError, RuntimeError, TypeError, ValueError):  # a torch without CUDA
        return None


def survives() -> bool:
    """Reports whether groups are re-formed in the process: the user asked for it, and this NCCL can
    be aborted."""
    if os.environ.get("ELASTICDL_NCCL", "") != "abort":
        return False
    found = version()
    if found is not None and found >= NCCL:
        return True
    sys.stderr.write(
        "elasticdl: ELASTICDL_NCCL=abort needs NCCL 2.26 or newer, and this is %s: processes are started again when the world changes\n"
        % (".".join(map(str, found)) if found else "of an unknown version")
    )
    return False


def prepare(survives: bool) -> None:
    """Sets what torch and NCCL read at start: the watchdog must not end the process before the
    abort."""
    for name, value in (
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"),
        ("TORCH_NCCL_ENABLE_MONITORING", "0"),
        ("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"),
        ("TORCH_NCCL_NONBLOCKING_TIMEOUT", "60"),
        ("NCCL_NVLS_ENABLE", "0"),
    ):
        os.environ.setdefault(name, value)
    if survives:
        # the agent has torchrun's value there, which ends the process
        os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"


def make(store: Any, rank: int, size: int) -> Any:
    """Returns NCCL's group; its communicator does not block, so that it can be aborted while it is
    made."""
    options = dist.ProcessGroupNCCL.Options()
    options.config.blocking = False
    options._timeout = timedelta(minutes=30)
    return dist.ProcessGroupNCCL(store, rank, size, options)


def abort(group: Any) -> None:
    """Ends all that waits in the group, here and on the GPU. Called in a thread of its own."""
    if group is not None:
        group.abort()
