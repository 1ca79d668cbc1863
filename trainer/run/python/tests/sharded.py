"""A script that trains a sharded model that counts its records, on all ranks.

Element i of ``count`` rises by one each time that record i is in an update.
"""

import argparse
import json
import time

import torch
from torch.distributed.fsdp import fully_shard

import elasticdl
from elasticdl import session

a = argparse.ArgumentParser()
a.add_argument("--size", type=int, default=600)
a.add_argument("--epochs", type=int, default=1)
a.add_argument("--pause", type=float, default=0.0)
a.add_argument("--every", type=int, default=5)
a.add_argument("--checkpoint", default="")
a = a.parse_args()
torch.set_num_threads(1)


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.count = torch.nn.Parameter(torch.zeros(a.size))
        self.other = torch.nn.Linear(30, 30)

    def forward(self, x):
        return -self.count[x].mean() + 0 * self.other(torch.ones(1, 30)).sum()


elasticdl.checkpoint(a.checkpoint, every=a.every)
elasticdl.init(sharded=True)
torch.manual_seed(1)
model = Counts()
fully_shard(model)
# the momentum adds nothing, and is sharded state of the optimizer
optimizer = torch.optim.SGD([{"params": [model.count]}, {"params": model.other.parameters(), "momentum": 0.9}], lr=1.0)
state = elasticdl.State(model=model, optimizer=optimizer, updates=0)


@elasticdl.run
def train(state):
    for x in elasticdl.records(list(range(a.size)), 8, epochs=a.epochs, records_per_task=32):
        optimizer.zero_grad()
        loss = model(x)
        elasticdl.weighted(loss).backward()
        with torch.no_grad():
            model.count.grad.mul_(session.current().weights()[1])  # a mean to a sum, so that the model counts
        optimizer.step()
        state.updates += 1
        time.sleep(a.pause)
        elasticdl.step(loss)
    return state.updates


updates = train(state)
counts = model.count.detach().full_tensor().round().int().tolist()
print(
    json.dumps(
        {
            "ended": True,
            "updates": updates,
            "size": elasticdl.world().size,
            "formation": elasticdl.world().formation,
            "wrong": [(i, c) for i, c in enumerate(counts) if c != a.epochs][:20],
        }
    ),
    flush=True,
)
