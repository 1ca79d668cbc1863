"""A script that ends with collectives, one after the other.

Python's lock changes its owner only where a thread waits.
"""

import sys

import torch

import elasticdl

elasticdl.init()
model = torch.nn.Linear(4, 1)
state = elasticdl.State(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


@elasticdl.run
def train(state):
    elasticdl.step(model(torch.ones(1, 4)).sum())


train(state)
sys.setswitchinterval(1000)
for _ in range(20):
    torch.distributed.all_reduce(torch.ones(1), async_op=True).wait()
