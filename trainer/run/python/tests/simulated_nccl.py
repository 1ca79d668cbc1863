"""A script that trains as work.py with init("nccl"), as if there were GPUs.

A group of gloo replaces NCCL's. As with NCCL, a wait in that group does not end when a peer is
lost, but only by an abort.
"""

import os
import runpy
import sys
import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import torch
import torch.distributed as dist

from elasticdl import session

dist.is_nccl_available = torch.cuda.is_available = lambda: True
torch.cuda.nccl.version = lambda: tuple(int(n) for n in os.environ.get("NCCL_IS", "2.26.2").split("."))


class Options:
    def __init__(self):
        self.config = SimpleNamespace(blocking=True)


class Work:
    """A collective on the GPU's stream, which ends at its end or its abort."""

    def __init__(self, group, work):
        self.group, self.work, self.failed = group, work, False

    def wait(self):
        while not self.group.aborted:
            if not self.failed and self.work.is_completed():
                try:
                    return self.work.wait()
                except RuntimeError:
                    self.failed = True
            time.sleep(0.001)
        raise RuntimeError("NCCL communicator was aborted")


class ProcessGroupNCCL(dist.ProcessGroupGloo):
    Options = Options

    def __init__(self, store, rank, size, options):
        assert options.config.blocking is False, "a communicator that blocks cannot be aborted while it is made"
        self.aborted = False
        super().__init__(store, rank, size, timeout=timedelta(minutes=30))

    def allreduce(self, tensors):
        return Work(self, super().allreduce(tensors))

    def abort(self):
        print("aborts in %s" % threading.current_thread().name, flush=True)
        if "ABORT_FAILS" in os.environ:
            raise RuntimeError("the communicator is in use")
        self.aborted = True


dist.ProcessGroupNCCL = ProcessGroupNCCL
sys.argv[1:1] = ["--backend", "nccl"]
runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "work.py"), run_name="__main__")
public, group = dist.distributed_c10d._get_default_group(), session.current().group
for device, backend in (("cuda", group.data), ("cpu", group.gloo)):
    assert public._get_backend(torch.device(device)) is backend, device
assert (
    isinstance(group.data, ProcessGroupNCCL) and dist.get_backend_config() == "cpu:gloo,cuda:nccl"
), dist.get_backend_config()
