"""Train with DDP over gloo, in a script that knows nothing of its launcher.

    elastic.py UNTIL DIRECTORY MEGABYTES

The model is the MNIST CNN, or has that many megabytes of parameters. Each process writes "STEP SIZE
WORLD UNIXTIME" to DIRECTORY/PID.steps after every applied step; WORLD is the pid of rank 0. The
script saves nothing and loads nothing after a restart, which a real job has to do in addition. It
ends on its own at UNTIL.
"""
import os

import torch
import torch.distributed as dist
from torch import nn

import workload

torch.set_num_threads(1)
torch.manual_seed(1)
dist.init_process_group("gloo")
size, world = dist.get_world_size(), torch.tensor([os.getpid() if dist.get_rank() == 0 else 0])
dist.all_reduce(world)
log = workload.Log(world.item())
net, loss, x, y = workload.make()
model = nn.parallel.DistributedDataParallel(net)
update = torch.optim.SGD(model.parameters(), lr=0.01)
while not workload.over():
    update.zero_grad(set_to_none=True)
    loss(model(x), y).backward()
    update.step()
    log.step(size)
