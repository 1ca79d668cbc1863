"""A script whose scheduler, and an average of its model, change after step().

When the world is lost, they have changed on one rank, and not on another.
"""

import json
import os
import time

import torch

import elasticdl
from elasticdl import session

torch.set_num_threads(1)
elasticdl.init()
slow = os.environ["NUMBER"] == "1"
model = torch.nn.Linear(1, 1)
average = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
rate = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
state = elasticdl.State(model=model, average=average, optimizer=optimizer, rate=rate)
before = None


def wait():
    """Keep this rank in step() until the world is lost."""
    if slow and session.current().round == 5:
        print("waits", flush=True)
        while not session.current().recalled():
            time.sleep(0.01)


@elasticdl.run
def train(state):
    global before
    if elasticdl.world().formation > 1:
        return
    session.current().on_commit.append(wait)
    net = elasticdl.DistributedDataParallel(model)
    for x in elasticdl.records([torch.tensor([float(i)]) for i in range(1000)], 8):
        optimizer.zero_grad()
        net(x).mean().backward()
        optimizer.step()
        before = rate.last_epoch
        elasticdl.step()
        rate.step()
        before = rate.last_epoch
        with torch.no_grad():
            for a, p in zip(average.parameters(), model.parameters()):
                a.data.lerp_(p.data, 0.5)


train(state)
print(
    json.dumps(
        {
            "round": session.current().round,
            "before": before,
            "after": {
                "steps": rate.last_epoch,
                "rate": optimizer.param_groups[0]["lr"],
                "average": [float(p) for p in average.parameters()],
                "model": [float(p) for p in model.parameters()],
            },
        }
    ),
    flush=True,
)
