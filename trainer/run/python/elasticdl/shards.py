"""Sharded state in the format of torch.distributed.checkpoint, which any number of ranks can read.

All ranks write their own shards. The training thread plans the commit, with one collective, and
copies the shards. The threads that write use no collectives: each rank reports its files in the
store of its world, and rank 0 completes the commit when all have.
"""

from __future__ import annotations

import errno
import pickle
import warnings
from datetime import timedelta
from typing import Any, Dict

import torch

from .doubt import Error
from .link import Cancelled
from .nccl import torch_version
from .places import Bucket, Place
from .replicas import is_shard, like
from .states import State, _gather_bytes

#: The oldest torch whose fully_shard is public.
TORCH = (2, 6)
#: Maximum wait for the shards of another rank.
PATIENCE = timedelta(minutes=30)


def check(backend: str, sharded: Any, checkpoint: bool) -> None:
    """Raise Error if state cannot be sharded so, as :func:`init` is asked to."""
    if sharded not in (False, True, "worker"):
        raise Error("init(sharded=%r): expected True, False or \"worker\"" % (sharded,))
    if not sharded:
        return
    wrong = []
    if torch_version() < TORCH:
        wrong.append("it needs torch 2.6 or newer, and this is torch %s: install a newer one" % torch.__version__)
    if sharded == "worker" and backend != "gloo":
        wrong.append('replicas train with "gloo", not with "%s": use it, or sharded=True' % backend)
    if sharded is True and not checkpoint:
        wrong.append("call elasticdl.checkpoint(path) before it: restarted processes read their shards there")
    if wrong:
        raise Error("init(sharded=%r): %s" % (sharded, "; and ".join(wrong)))


def collect(state: State) -> Dict[str, Any]:
    """Return the state by name, with the names of parameters in place of an optimizer's numbers.

    Raise Error for an optimizer whose model is not in the State.
    """
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

    values: Dict[str, Any] = {}
    for name, member in state._members():
        if isinstance(member, torch.nn.Module):
            values[name] = get_model_state_dict(member)
        elif isinstance(member, torch.optim.Optimizer):
            values[name] = get_optimizer_state_dict(_model_of(state, name, member), member)
        else:
            values[name] = member.state_dict() if hasattr(member, "load_state_dict") else member
    return values


def _load(state: State, values: Dict[str, Any]) -> None:
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        set_model_state_dict,
        set_optimizer_state_dict,
    )

    # An optimizer without momentum has no state of a parameter. A missing part of a checkpoint was
    # an error before.
    some = StateDictOptions(strict=False)
    for name, member in state._members():
        if isinstance(member, torch.nn.Module):
            set_model_state_dict(member, values[name])
        elif isinstance(member, torch.optim.Optimizer):
            set_optimizer_state_dict(_model_of(state, name, member), member, values[name], options=some)
        elif hasattr(member, "load_state_dict"):
            member.load_state_dict(values[name])
        else:
            state.__dict__[name] = values[name]


def _model_of(state: State, name: str, optimizer: torch.optim.Optimizer) -> torch.nn.Module:
    mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for _, member in state._members():
        if isinstance(member, torch.nn.Module) and mine <= {id(p) for p in member.parameters()}:
            return member
    raise Error("State(%s=…): the model of this optimizer is not in the State: add it" % name)


class Plan:
    """The parts that all ranks write in one commit. ``tensors`` are this rank's, to be copied."""

    def __init__(self, group: Any, place: Place, name: str, values: Dict[str, Any]) -> None:
        from torch.distributed.checkpoint import DefaultSavePlanner

        self.rank, self.size, self.name = group.rank, group.size, name
        self.store: Any = group.store
        self._writer = _writer(place, name)
        self._planner: Any = DefaultSavePlanner()
        self._planner.set_up_planner(values, self._writer.storage_meta(), self.rank == 0)
        self._writer.set_up_storage_writer(self.rank == 0)
        local = self._planner.create_local_plan()
        plans = [pickle.loads(body) for body in _gather_bytes(group, pickle.dumps(local))]
        # Each rank computes the same global plan.
        plans, self._metadata = self._planner.create_global_plan(plans)
        plans = self._writer.prepare_global_plan(plans)
        self._plan = self._planner.finish_plan(plans[self.rank])

    @property
    def tensors(self) -> Dict[str, Any]:
        """The values of this rank, with the local part of each sharded tensor."""
        return {k: v.to_local() if is_shard(v) else v for k, v in self._planner.state_dict.items()}

    def write(self, tensors: Dict[str, Any]) -> None:
        """Write this rank's shards, which are given, and report that. Any thread may call it."""
        told = b""
        try:
            flat = self._planner.state_dict
            self._planner.state_dict = {k: like(v, tensors[k]) for k, v in flat.items()}
            self._writer.prepare_local_plan(self._plan)  # it makes the directory
            told = pickle.dumps(self._writer.write_data(self._plan, self._planner).value())
        except Exception as e:
            told = pickle.dumps("%s: %s" % (type(e).__name__, e))
            raise
        finally:
            self.store.set(self._key(str(self.rank)), told)

    def complete(self) -> None:
        """Write the metadata when all ranks have reported. Raise OSError if one has failed."""
        results = []
        for rank in range(self.size):
            told = pickle.loads(self._heard(str(rank)))
            self.store.delete_key(self._key(str(rank)))
            if isinstance(told, str):
                raise OSError(errno.EIO, "rank %d: %s" % (rank, told))
            results.append(told)
        self._writer.finish(self._metadata, results)

    def tell(self, why: str) -> None:
        """Report to the other ranks whether the commit is complete, ""; or why not."""
        self.store.set(self._key("end"), why or "complete")

    def await_end(self) -> str:
        """Wait until the commit is complete; return why it is not, or ""."""
        told = self._heard("end").decode()
        return "" if told == "complete" else told

    def _heard(self, what: str) -> bytes:
        """Wait for a report, and return it.

        Raise Cancelled if the world ends before, and OSError if the report does not come.
        """
        try:
            self.store.wait([self._key(what)], PATIENCE)
            return bytes(self.store.get(self._key(what)))
        except Cancelled:
            raise
        except RuntimeError as e:
            raise OSError(errno.ETIMEDOUT, "there is no report of %s: %s" % (what, e)) from e

    def _key(self, what: str) -> str:
        return "elasticdl/%s/%s" % (self.name, what)


def _writer(place: Place, name: str) -> Any:
    if isinstance(place, Bucket):
        from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter

        return FsspecWriter(place.url(name), **place.options)
    from torch.distributed.checkpoint import FileSystemWriter

    return FileSystemWriter(place.path(name))


def load(place: Place, name: str, state: State) -> None:
    """Read what this rank needs of a commit into the State."""
    import torch.distributed.checkpoint as dcp

    if isinstance(place, Bucket):
        from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader

        reader: Any = FsspecReader(place.url(name), **place.options)
    else:
        reader = dcp.FileSystemReader(place.path(name))
    values = collect(state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each rank reads for itself, which torch takes for one process
        dcp.load(values, storage_reader=reader, no_dist=True)
    _load(state, values)

