"""Prints for how long steps of a script with 1 GB of state wait for a checkpoint, in seconds.

Arguments: a directory, and the number of checkpoints. Each is written before the next step.
"""

import os
import sys
import time

import torch

import elasticdl
from elasticdl import saving

where, count = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
elasticdl.checkpoint(os.path.join(where, "saved"), every=2)
elasticdl.init()
# 332 MB of parameters, and two slots of Adam
model = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(1000, 1000)) for _ in range(83)])
optimizer = torch.optim.Adam(model.parameters(), foreach=False)


def update():
    for p in model:
        p.grad = torch.ones_like(p)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


@elasticdl.run
def train(state):
    for i, _ in enumerate(elasticdl.records(range(2 * count), 1, shuffle=False)):
        update()
        began = time.perf_counter()
        elasticdl.step()
        if i % 2:
            print(time.perf_counter() - began, flush=True)
        saving.declared.settle()
        if saving.declared._staging:
            saving.declared._staging.wait()


train(elasticdl.State(model=model, optimizer=optimizer))
