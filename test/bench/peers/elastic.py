"""torchrun's side of the recovery benchmark: DDP over gloo trains the MNIST CNN, batch 64.

Prints "STEP WORLD PID UNIXTIME" after every applied step. It saves nothing and loads
nothing after a restart, which a real job has to do in addition. It ends by itself
when the seconds of its argument are over.
"""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
import torch.nn.functional as F

BATCH = 64

torch.set_num_threads(1)
torch.manual_seed(1)
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Sequential(
    nn.Conv2d(1, 32, 3), nn.ReLU(inplace=True),
    nn.Conv2d(32, 64, 3), nn.ReLU(inplace=True),
    nn.BatchNorm2d(64, eps=1e-3, momentum=0.01),
    nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 10)))
update = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.rand(BATCH, 1, 28, 28)
y = torch.randint(0, 10, (BATCH,))
step = 0
while time.time() < float(sys.argv[1]):
    update.zero_grad(set_to_none=True)
    F.cross_entropy(model(x), y).backward()
    update.step()
    step += 1
    print("STEP %d %d %.6f" % (dist.get_world_size(), os.getpid(), time.time()), flush=True)
