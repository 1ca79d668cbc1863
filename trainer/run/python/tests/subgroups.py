"""A script that makes a group of its own in each world, for torch's DistributedDataParallel.

Torch's reducer waits in C++, where the package cannot look whether the world has ended.
"""

import json
import sys
import time

import torch
import torch.distributed as dist

import elasticdl

torch.set_num_threads(1)
elasticdl.init()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
state = elasticdl.State(model=model, optimizer=optimizer, worlds=[])
data = [torch.ones(8) * (i % 5) for i in range(int(sys.argv[1]))]


@elasticdl.run
def train(state):
    world = elasticdl.world()
    ranks = list(range(world.size))
    assert (dist.get_rank(), dist.get_world_size()) == (world.rank, world.size)
    assert not hasattr(dist, "get_process_group_ranks") or dist.get_process_group_ranks(dist.group.WORLD) == ranks
    own = dist.new_group(ranks)
    sent = torch.tensor([float(world.rank)])
    dist.broadcast(sent, world.size - 1, group=own)
    assert sent.item() == world.size - 1
    net = torch.nn.parallel.DistributedDataParallel(model, process_group=own)
    state.worlds = state.worlds + [world.formation]
    for x in elasticdl.records(data, 8):
        optimizer.zero_grad()
        net(x).mean().backward()
        optimizer.step()
        time.sleep(0.002)
        elasticdl.step()


train(state)
print(json.dumps({"rank": elasticdl.world().rank, "worlds": state.worlds, "wrong": []}), flush=True)
