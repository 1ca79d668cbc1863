"""Elastic training in PyTorch: a process keeps its state when the world changes.

::

    import elasticdl

    elasticdl.init()
    state = elasticdl.State(model=model, optimizer=optimizer)

    @elasticdl.run
    def train(state):
        net = elasticdl.DistributedDataParallel(model)
        for x, y in elasticdl.records(dataset, batch_size=64, epochs=2):
            optimizer.zero_grad()
            loss = loss_of(net(x), y)
            loss.backward()
            optimizer.step()
            elasticdl.step(loss)

    train(state)

The package needs only the standard library and the script's torch (1.13, or 2.x). Without an agent
the world is this process alone.
"""

from .doubt import AGENT_GONE, DOUBT, RESTART, Error, WorldChanged
from .feeding import dataset, lease, records
from .gradients import DistributedDataParallel, allreduce_gradients, weighted
from .group import World
from .leases import Lease
from .loop import init, leaving, run, step, world
from .replicas import worker_mesh
from .saving import checkpoint
from .states import State
from .streams import stream

__all__ = [
    "AGENT_GONE", "DOUBT", "RESTART", "DistributedDataParallel", "Error", "Lease", "State", "World", "WorldChanged",
    "allreduce_gradients", "checkpoint", "dataset", "init", "lease", "leaving", "records", "run", "step", "stream",
    "weighted", "worker_mesh", "world",
]
