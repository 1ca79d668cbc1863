"""A script whose newcomers make their model until a file exists, and ask for what a script may ask.

The arguments are the directory of the file, and perhaps the path of a checkpoint.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist

import elasticdl


def refused(call):
    """Return the message with which a call is refused; "" if it is not."""
    try:
        call()
    except Exception as e:
        return str(e)
    return ""


if len(sys.argv) > 2:
    elasticdl.checkpoint(sys.argv[2], every=1)
world = elasticdl.init()
found = {"begin": list(world), "dist": [dist.get_rank(), dist.get_world_size()], "backend": dist.get_backend(),
         "env": [os.environ["RANK"], os.environ["WORLD_SIZE"]]}
if world.formation == 0:
    dist.barrier()
    one = torch.ones(1)
    for name, call in {
        "all_reduce": lambda: dist.all_reduce(one),
        "broadcast": lambda: dist.broadcast(one, 0),
        "all_gather": lambda: dist.all_gather([one] * world.size, one),
        "new_group": lambda: dist.new_group([0, 2]),
        "all_gather_object": lambda: dist.all_gather_object([None] * world.size, 1),
        "ddp": lambda: torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1)),
        "lease": lambda: (elasticdl.dataset(100), elasticdl.lease()),
        "step": elasticdl.step,
    }.items():
        found[name] = refused(call)
    print("builds", flush=True)
    while not os.path.exists(os.path.join(sys.argv[1], "made")):
        time.sleep(0.01)
model = torch.nn.Linear(1, 1)


@elasticdl.run
def train(state):
    ended = torch.zeros(1)
    while not ended:  # on all ranks after the same round
        ended.fill_(os.path.exists(os.path.join(sys.argv[1], "end")))
        dist.all_reduce(ended)
        elasticdl.step()
        time.sleep(0.005)


train(elasticdl.State(model=model))
found["end"] = list(elasticdl.world())
print(json.dumps(found), flush=True)
