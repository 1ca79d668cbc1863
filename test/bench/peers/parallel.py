"""Train a perceptron that torch.distributed.tensor.parallel splits over all ranks.

    parallel.py UNTIL DIRECTORY MEGABYTES

It is split column by column and row by row, and trained over gloo. The script writes steps as
elastic.py does, and sleeps in none.
"""
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import workload

WIDTH, HIDDEN, BATCH = 256, 1024, 64

size = int(os.environ["WORLD_SIZE"])
mesh = init_device_mesh("cpu", (size,))
world = torch.tensor([os.getpid() if dist.get_rank() == 0 else 0])
dist.all_reduce(world)
log = workload.Log(world.item(), pause=0)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(WIDTH, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, WIDTH))
model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
update = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
over = torch.zeros(1)
while not over.item():
    x = torch.rand(BATCH, WIDTH)
    dist.broadcast(x, 0)
    update.zero_grad(set_to_none=True)
    model(x).square().mean().backward()
    update.step()
    over.fill_(workload.over())
    dist.all_reduce(over, op=dist.ReduceOp.MAX)
    log.step(size)
