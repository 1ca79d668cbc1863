"""Gradients averaged over the global batch: their sum over all records, divided by the number.

Batches of ranks may differ in size, and a rank without records has weight 0. The module uses plain
all-reduces of buckets. The reducer of torch's DistributedDataParallel would have to be made again
in each world.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Union

import torch

from .doubt import Error
from .replicas import Replica, is_shard, like, local
from .session import Session, current
from .spent import PEERS

#: The size of a bucket: large enough for the network, small enough to overlap with the backward
#: pass.
BUCKET_BYTES = 4 << 20

Parameters = Union[torch.nn.Module, Iterable[torch.nn.Parameter]]


class _Bucket:
    """A group of parameters whose gradients are reduced together.

    ``flat`` holds the gradients, then a flag for each parameter: whether a rank has a gradient of
    it.
    """

    def __init__(self, parameters: List[torch.nn.Parameter]) -> None:
        self.parameters = parameters
        first = parameters[0]
        kind = torch.float32 if first.dtype in (torch.float16, torch.bfloat16) else first.dtype
        self.sizes = [local(p).numel() for p in parameters]  # of this process's parts
        self.elements = sum(self.sizes)
        self.flat = torch.zeros(self.elements + len(parameters), dtype=kind, device=first.device)
        self.waiting = len(parameters)
        self.work: Any = None

    def launch(self, session: Session, weight: int) -> None:
        """Start the sum over all ranks of the gradients, each multiplied by its rank's weight.

        Gradients of replicas are weighted already, see :func:`weighted`.

        Raise Error for a sparse gradient.
        """
        if session.replica is not None:
            weight = 1
        at = 0
        for i, (p, size) in enumerate(zip(self.parameters, self.sizes)):
            part = self.flat[at:at + size]
            has = p.grad is not None and weight > 0
            if has and p.grad.is_sparse:
                raise Error(
                    "a parameter of the shape %s has a sparse gradient, which cannot be averaged: make the layer with sparse=False"
                    % list(p.shape)
                )
            if has:
                part.copy_(local(p.grad.detach()).reshape(-1)).mul_(weight)
            else:
                part.zero_()
            self.flat[self.elements + i] = 1 if has else 0
            at += size
        if session.group.across.size() > 1:
            self.work = session.group.across.allreduce([self.flat])

    def land(self, total: int) -> None:
        """Wait for the sums, divide them by ``total``, and make them the gradients."""
        if self.work is not None:
            with PEERS:
                self.work.wait()
            self.work = None
        had = self.flat[self.elements:].tolist()
        at = 0
        for i, (p, size) in enumerate(zip(self.parameters, self.sizes)):
            part = self.flat[at:at + size]
            at += size
            if not had[i]:
                # No rank has a gradient: the optimizer skips the parameter, as in one process.
                p.grad = None
            elif p.grad is None:
                p.grad = like(p, part.div(total).reshape(local(p).shape).to(p.dtype))
            else:
                grad = local(p.grad)
                grad.copy_(part.div_(total).reshape(grad.shape))


class Reducer:
    """The reduction of the gradients of one set of parameters.

    It reduces bucket by bucket, in the same order on all ranks.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self.buckets: List[_Bucket] = []
        self.of: Dict[torch.nn.Parameter, _Bucket] = {}
        kinds: Dict[Any, List[torch.nn.Parameter]] = {}
        for p in reversed([p for p in parameters if p.requires_grad]):
            mates = kinds.setdefault((p.dtype, p.device), [])
            if mates and sum(m.numel() * m.element_size() for m in mates) + p.numel() * p.element_size() > BUCKET_BYTES:
                self._add(mates)
                mates = kinds[p.dtype, p.device] = []
            mates.append(p)
        for mates in kinds.values():
            if mates:
                self._add(mates)
        self.next = 0
        self.weight: Optional[int] = None
        self.records: Optional[int] = None
        self.joined: Any = None

    def _add(self, parameters: List[torch.nn.Parameter]) -> None:
        bucket = _Bucket(list(parameters))
        self.buckets.append(bucket)
        for p in parameters:
            self.of[p] = bucket

    def open(self, session: Session) -> None:
        """Begin a reduction, unless one has begun; the round's header is gathered first."""
        if self.weight is None:
            self.joined = session
            session.reducers.add(self)
            session.updates.reopen()
            self.weight = session.weight(self.records)

    def ready(self, session: Session, p: torch.nn.Parameter) -> None:
        """Note that a gradient is complete, and start to reduce complete buckets, in order."""
        self.open(session)
        self.of[p].waiting -= 1
        self._launch(session, False)

    def _launch(self, session: Session, all_of_them: bool) -> None:
        assert self.weight is not None
        while self.next < len(self.buckets) and (all_of_them or self.buckets[self.next].waiting <= 0):
            bucket = self.buckets[self.next]
            self.next += 1
            try:
                bucket.launch(session, self.weight)
            except RuntimeError as e:
                if session.group.size == 1 or isinstance(e, Error):
                    raise
                session.lost(e)

    def finish(self, session: Session) -> None:
        """End the reduction: every parameter's gradient is the mean over the global batch.

        Raise WorldChanged if a rank is lost.
        """
        if session.replica is not None:
            self._check(session, session.replica)
        self.open(session)
        self._launch(session, True)
        total = session.weights(self.records)[1]
        for bucket in self.buckets:
            if total == 0 or session.replica is not None:
                # No rank has records and the sums are zero; or the sums are the means.
                total = 1
            try:
                bucket.land(total)
            except RuntimeError as e:
                if session.group.size == 1:
                    raise
                session.lost(e)
        session.agree()
        self._close()
        session.half = True

    def _check(self, session: Session, replica: Replica) -> None:
        """Raise Error if the gradients of replicas would be wrong."""
        asked = 'init(sharded="worker"): '
        if not session.weighed:
            raise Error(asked + "call elasticdl.weighted(loss).backward() before allreduce_gradients()")
        if session.half:
            raise Error(asked + "call allreduce_gradients() once in a round, with the parameters of all models")
        for p in self.of:
            if replica.size > 1 and not (is_shard(p) and p.device_mesh == replica.mesh()):
                raise Error(
                    asked + "a parameter with the shape %s is not sharded over worker_mesh(): call "
                    "fully_shard(model, mesh=elasticdl.worker_mesh()) for the whole model" % (tuple(p.shape),)
                )

    def _close(self) -> None:
        self.next, self.weight = 0, None
        for bucket in self.buckets:
            bucket.waiting, bucket.work = len(bucket.parameters), None

    def reset(self) -> None:
        """Drop a reduction that the end of the world interrupted.

        The old group may still use the buffers, so they are replaced.
        """
        if self.weight is not None:
            for bucket in self.buckets:
                bucket.flat = torch.zeros_like(bucket.flat)
            self._close()


def _parameters(model: Parameters) -> List[torch.nn.Parameter]:
    return list(model.parameters()) if isinstance(model, torch.nn.Module) else list(model)


_reducers: Dict[Any, Reducer] = {}


def allreduce_gradients(model: Parameters, records: Optional[int] = None) -> None:
    """Replace the gradients of ``model`` by their mean over the global batch.

    ``model`` is a module or an iterable of parameters. Call the function on all ranks between
    ``backward()`` and ``optimizer.step()``. Only parameters that require gradients now are
    averaged: freeze and unfreeze them on all ranks alike. The weight of a rank is the number of
    records that it took since the last step. Without :func:`records` and :func:`lease` it is
    ``records``, by default 1, so that all ranks count alike. Raise WorldChanged if a rank is lost,
    and Error for a sparse gradient.
    """
    session = current()
    session.check_ready()
    parameters = [p for p in _parameters(model) if p.requires_grad]
    key = tuple(id(p) for p in parameters)
    if key not in _reducers:
        for old in [k for k in _reducers if not set(k).isdisjoint(key)]:
            del _reducers[old]  # from before parameters were frozen or unfrozen
        _reducers[key] = Reducer(parameters)
    reducer = _reducers[key]
    reducer.records = records
    reducer.finish(session)


def weighted(loss: Any, records: Optional[int] = None) -> Any:
    """Return the loss of this rank's batch, scaled for a wrapper that averages over ranks.

    ``fully_shard`` divides the sum of the ranks' gradients by their number. With this loss that is
    the mean over the records of the global batch, also where ranks have different numbers, or
    none. Call it on all ranks before ``backward()``. ``records`` is as in
    :func:`allreduce_gradients`. Raise WorldChanged if a rank is lost.
    """
    session = current()
    session.check_ready()
    mine, total = session.weights(records)
    session.weighed = True
    return loss * (mine * session.group.shards / max(total, 1))


class DistributedDataParallel(torch.nn.Module):
    """A wrapper of a module whose ``backward()`` averages gradients over the global batch.

    The average overlaps with the backward pass. The wrapper may be made once, or again in each
    world: the module's parameters have one set of hooks in either case.

    While ``require_backward_grad_sync`` is False gradients add up, and ``backward()`` does not
    average them. As with torch, the forward pass reads it for the backward pass that follows.
    Options of torch's class that change nothing here are accepted. Others raise Error, and unknown
    ones TypeError.
    """

    def __init__(
        self, module: torch.nn.Module, device_ids: Any = None, output_device: Any = None, **options: Any
    ) -> None:
        if current().replica is not None:
            raise Error('init(sharded="worker"): call allreduce_gradients(model) after backward(), not this class')
        super().__init__()
        _check_options(dict(options, device_ids=device_ids, output_device=output_device))
        self.module = module
        self.require_backward_grad_sync = True
        self._hooks: Optional[_Hooks] = _hooks_of(module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self._hooks is None:  # this is a copy
            self._hooks = _hooks_of(self.module)
        if torch.is_grad_enabled():
            self._hooks.on = self.require_backward_grad_sync
        return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Return a context manager in which gradients add up and are not averaged.

        It applies to ``backward()`` calls whose forward pass is within it.
        """
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def __getattr__(self, name: str) -> Any:
        if name in _METHODS:
            raise AttributeError("DistributedDataParallel.%s is not there: %s" % (name, _METHODS[name]))
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OPTIONS or name in _NO_EFFECT:
            _check_options({name: value})
        super().__setattr__(name, value)


#: Options of torch's DistributedDataParallel: the values that change nothing here, and what to do
#: instead of using others.
_OPTIONS: Dict[str, Any] = {
    "broadcast_buffers": (
        (False,),
        "buffers are each rank's own: average them in the training function, or keep broadcast_buffers=False",
    ),
    "process_group": ((None,), "gradients are averaged over all ranks of the world: leave it out"),
    "mixed_precision": ((None,), "use torch.autocast, or convert the module"),
    "delay_all_reduce_named_params": ((None,), "every gradient is reduced once complete: leave it out"),
    "param_to_hook_all_reduce": ((None,), "every gradient is reduced once complete: leave it out"),
    "device_mesh": ((None,), "tensor parallelism is not re-formed in the process: leave such scripts unchanged"),
}

#: Further options that change nothing here: unused parameters and changing graphs are handled in
#: any case.
_NO_EFFECT = (
    "dim",
    "bucket_cap_mb",
    "find_unused_parameters",
    "check_reduction",
    "gradient_as_bucket_view",
    "static_graph",
    "init_sync",
    "skip_all_reduce_unused_params",
    "require_forward_param_sync",
)

#: Methods of torch's class that are missing here, and what to do instead.
_METHODS = {
    "register_comm_hook": "gradients are summed unscaled: change them after backward()",
    "join": "records() hands batches to all ranks until every record is in the model: leave it out",
    "_set_static_graph": "graphs that change are handled in any case: leave it out",
    "will_sync_module_buffers": "buffers are each rank's own",
}


def _check_options(options: Dict[str, Any]) -> None:
    for name, value in options.items():
        if name == "device_ids":
            if value is not None and len(value) > 1:
                raise Error("device_ids=%r: a process trains on one device: give one, or none" % (value,))
        elif name in _OPTIONS:
            same, remedy = _OPTIONS[name]
            if not any(value is s for s in same):
                raise Error("DistributedDataParallel(%s=%r) is not supported: %s" % (name, value, remedy))
        elif name not in _NO_EFFECT and name != "output_device":
            raise TypeError("DistributedDataParallel() has no option %r" % name)


def _hooks_of(module: torch.nn.Module) -> "_Hooks":
    """Return the hooks of a module; make them again if other parameters require gradients now."""
    hooks: Optional[_Hooks] = module.__dict__.get("_elasticdl_hooks")
    parameters = [p for p in module.parameters() if p.requires_grad]
    if hooks is None or len(hooks.reducer.of) != len(parameters) or any(p not in hooks.reducer.of for p in parameters):
        if hooks is not None:
            hooks.remove()
        hooks = module.__dict__["_elasticdl_hooks"] = _Hooks(parameters)
    return hooks


class _Hooks:
    """The hooks on the autograd nodes that accumulate the gradients of parameters."""

    def __init__(self, parameters: List[torch.nn.Parameter]) -> None:
        self.on = True
        self.reducer = Reducer(parameters)
        self._queued = False
        # A node and its hook exist as long as something refers to the node.
        self._nodes = []
        for p in parameters:
            node = p.expand_as(p).grad_fn.next_functions[0][0]
            self._nodes.append((node, node.register_hook(self._hook(p))))

    def remove(self) -> None:
        for _, handle in self._nodes:
            handle.remove()

    def _hook(self, p: torch.nn.Parameter) -> Callable[..., None]:
        def ready(*_: Any) -> None:
            if not self.on:
                return
            session = current()
            session.check_ready()
            if self.reducer.weight is None:
                self._queued = False
            self.reducer.ready(session, p)
            if not self._queued:
                self._queued = True
                torch.autograd.Variable._execution_engine.queue_callback(self._finish)

        return ready

    def _finish(self) -> None:
        self._queued = False
        self.reducer.finish(current())

    def __deepcopy__(self, memo: Any) -> None:
        return None  # a copy of the module has no hooks

    def __reduce__(self) -> Any:
        return type(None), ()  # nor has a saved module
