"""Trains replicas of a sharded model that counts its records: element i of "count" rises by one
each time that record i is in an update. Each worker's processes have one replica, or all processes have
one model if the third argument is "all".

Until the file "enough" is there a step lasts a while, so that there is time for what the test does.
"""
import os
import sys
import time

import torch
from torch.distributed.fsdp import fully_shard

import elasticdl

home, size, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
apart = sys.argv[4:] == ["all"]


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.count = torch.nn.Parameter(torch.zeros(size))
        self.layer = torch.nn.Linear(30, 30)

    def forward(self, x):
        return -self.count[x].mean() + 0 * self.layer(torch.ones(1, 30)).sum()


if apart:
    elasticdl.checkpoint(os.path.join(home, "checkpoint"), every=1000)
elasticdl.init(sharded=True if apart else "worker")
model = Counts()
fully_shard(model, mesh=None if apart else elasticdl.worker_mesh())
optimizer = torch.optim.SGD(
    [{"params": [model.count], "lr": 1.0}, {"params": model.layer.parameters(), "momentum": 0.9}], lr=0.1
)
state = elasticdl.State(model=model, optimizer=optimizer, steps=0)


@elasticdl.run
def train(state):
    for x in elasticdl.records(list(range(size)), 8, records_per_task=64):
        optimizer.zero_grad()
        loss = model(x)
        elasticdl.weighted(loss).backward()
        if not apart:
            elasticdl.allreduce_gradients(model)
        # of each record of the global batch the same share, over all shards
        most = (-model.count.grad).max().full_tensor()
        model.count.grad.div_(most)
        optimizer.step()
        state.steps += 1
        world = elasticdl.world()
        print(f"step {state.steps} rank {world.rank} world {world.size} pid {os.getpid()}", flush=True)
        if not os.path.exists(os.path.join(home, "enough")):
            time.sleep(pause)
        elasticdl.step(loss)


train(state)
counts = model.count.detach().to_local().round().int().tolist()
wrong = [(i, n) for i, n in enumerate(counts) if n != 1]
print(f"counted {len(counts) - len(wrong)} right, {len(wrong)} wrong: {wrong[:20]}", flush=True)
sys.exit(1 if wrong else 0)
