"""Train as elastic.py does, with the package elasticdl.

The process and its state stay when the world changes.
"""
import sys

import torch
from torch.utils.data import TensorDataset

import elasticdl

import workload

torch.set_num_threads(1)
elasticdl.init()
torch.manual_seed(1)
log = workload.Log()
net, loss, x, y = workload.make()
update = torch.optim.SGD(net.parameters(), lr=0.01)
state = elasticdl.State(model=net, optimizer=update)
data = TensorDataset(x.repeat(128, *[1] * (x.dim() - 1)), y.repeat(128, *[1] * (y.dim() - 1)))


@elasticdl.run
def train(state):
    model = elasticdl.DistributedDataParallel(net)
    world = elasticdl.world()
    for x, y in elasticdl.records(data, workload.BATCH, epochs=1_000_000):
        update.zero_grad()
        value = loss(model(x), y)
        value.backward()
        update.step()
        log.step(world.size, world.formation)
        elasticdl.step(value)
        if workload.over():
            sys.exit(0)


train(state)
