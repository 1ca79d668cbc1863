"""Train as elastic.py does, with torchft.

Each process is a replica group of its own; their lighthouse is in TORCHFT_LIGHTHOUSE.
"""
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

import workload

torch.set_num_threads(1)
torch.manual_seed(1)
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
log = workload.Log()
net, loss, x, y = workload.make()


def load_state_dict(state):
    net.load_state_dict(state["model"])
    update.load_state_dict(state["update"])


# 5 s, as torchft's own example has it; more where a copy of the state takes longer
wait = timedelta(seconds=5 if workload.MEGABYTES < 1000 else 20)
manager = Manager(
    pg=ProcessGroupGloo(timeout=wait),
    load_state_dict=load_state_dict, state_dict=lambda: {"model": net.state_dict(), "update": update.state_dict()},
    min_replica_size=1, rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port, hostname="127.0.0.1",
    replica_id="replica_%d" % os.getpid())
model = DistributedDataParallel(manager, net)
update = Optimizer(manager, torch.optim.SGD(net.parameters(), lr=0.01))
while not workload.over():
    update.zero_grad()
    loss(model(x), y).backward()
    update.step()
    if manager.errored() is None and manager.is_participating():
        size = manager.num_participants()
        log.step(size, manager._quorum_id * 1000 + size)
