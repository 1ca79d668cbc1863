"""NCCL's process group, which can be made with torch ≥ 2.7 and aborted with NCCL ≥ 2.26.

On a GPU this module was run with one rank only.

A process that uses NCCL is restarted when the world changes, unless ``ELASTICDL_NCCL=abort`` is
set. With it the group is aborted from a second thread, all communicators at once, and never
flushed: ``destroy_process_group`` would wait for the dead peer.
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

#: The oldest torch that can make groups here, and the oldest NCCL that can abort them.
TORCH, NCCL = (2, 7), (2, 26)


def check() -> None:
    """Raise Error if no NCCL group can be made with this torch on this machine."""
    if torch_version() < TORCH:
        raise Error(
            "init(backend=\"nccl\") needs torch 2.7 or newer, and this is torch %s: "
            "install a newer one, or call init(\"gloo\")"
            % torch.__version__
        )
    if not dist.is_nccl_available():
        raise Error(
            "init(backend=\"nccl\"): torch %s was built without NCCL: install one with CUDA, or call init(\"gloo\")"
            % torch.__version__
        )
    if not torch.cuda.is_available():
        raise Error(
            "init(backend=\"nccl\"): this process sees no GPU: "
            "give the worker one, look at CUDA_VISIBLE_DEVICES, or call init(\"gloo\")"
        )


def torch_version() -> Tuple[int, ...]:
    """Return the first two numbers of torch's version: (2, 7) for 2.7.0a0+cu126."""
    found = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def version() -> Optional[Tuple[int, ...]]:
    """Return the version of NCCL that torch uses, None if it is unknown."""
    try:
        return tuple(int(n) for n in torch.cuda.nccl.version()[:3])
    except (AttributeError, RuntimeError, TypeError, ValueError):  # a torch without CUDA
        return None


def survives() -> bool:
    """Return whether groups are re-formed in the process.

    The user must have asked for it, and NCCL must be able to abort. If only the latter is missing,
    print a warning.
    """
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
    """Set the variables that torch and NCCL read at start.

    They keep torch's watchdog from ending the process before the abort.
    """
    for name, value in (
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"),
        ("TORCH_NCCL_ENABLE_MONITORING", "0"),
        ("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"),
        ("TORCH_NCCL_NONBLOCKING_TIMEOUT", "60"),
        ("NCCL_NVLS_ENABLE", "0"),
    ):
        os.environ.setdefault(name, value)
    if survives:
        # The agent sets torchrun's value, with which the watchdog ends the process.
        os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"


def make(store: Any, rank: int, size: int) -> Any:
    """Return NCCL's group for this rank.

    Its communicator does not block, so that it can be aborted while it is constructed.
    """
    options = dist.ProcessGroupNCCL.Options()
    options.config.blocking = False
    options._timeout = timedelta(minutes=30)
    return dist.ProcessGroupNCCL(store, rank, size, options)


def abort(group: Any) -> None:
    """End all waits in the group, on the host and on the GPU. Call it in a thread of its own."""
    if group is not None:
        group.abort()
