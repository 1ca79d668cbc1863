"""A script that trains replicas of a sharded model that counts its records.

Element i of ``count`` rises by one each time that record i is in an update. The layers have a
momentum, and their loss is that of the records, so that the result depends on every update.

Until the file ``--busy`` is removed, a round lasts ``--pause``. A ``--fault`` ends a process of
worker 0, so that a collective of the others ends for one local rank, and fails for another.
"""

import argparse
import hashlib
import json
import os
import signal
import time

import torch
from torch.distributed.fsdp import fully_shard

import elasticdl
from elasticdl import checkpoint, session, shards, states

a = argparse.ArgumentParser()
a.add_argument("--size", type=int, default=600)
a.add_argument("--batch", type=int, default=0, help="of all ranks; 0: 8 records of each rank's own leases")
a.add_argument("--pause", type=float, default=0.0)
a.add_argument("--busy", default="")
a.add_argument("--fault", default="")
a.add_argument("--checkpoint", default="")
a.add_argument("--every", type=int, default=5)
a.add_argument("--write", type=float, default=0.0, help="seconds until a checkpoint is written")
a = a.parse_args()
torch.set_num_threads(1)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.count = torch.nn.Parameter(torch.zeros(a.size))
        self.hidden = torch.nn.Linear(7, 30)
        self.last = torch.nn.Linear(30, 1)

    def forward(self, x):
        y = self.last(torch.tanh(self.hidden((x[:, None] * torch.arange(1, 8) % 13) / 13.0)))
        return -self.count[x].mean() + ((y - 1) ** 2).mean()


if a.checkpoint:
    checkpoint(a.checkpoint, every=a.every)
elasticdl.init(sharded="worker")
torch.manual_seed(1)
model = Model()
mesh = elasticdl.worker_mesh()
for layer in (model.hidden, model.last):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
rest = [p for name, p in model.named_parameters() if name != "count"]
optimizer = torch.optim.SGD([{"params": [model.count], "lr": 1.0}, {"params": rest, "momentum": 0.9}], lr=0.02)
state = elasticdl.State(model=model, optimizer=optimizer, updates=0, epoch=0)
place = int(os.environ["GROUP_RANK"]), int(os.environ["LOCAL_RANK"])
hand = states._hand
write = shards.Plan.write
shards.Plan.write = lambda *args: time.sleep(a.write) or write(*args)


def end(*args):
    """End this process, when the other local ranks have ended what they do."""
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt():
    """Raise what a collective raises that a lost process interrupts."""
    while not session.current().recalled():
        time.sleep(0.002)
    raise RuntimeError("Connection closed by peer")


class Ends:
    """A group in whose reduction this process ends."""

    allreduce = end
    size = session.current().world.size.__int__


def faults(state):
    """Prepare the fault, if it is to come in this round."""
    if a.fault == "reduction" and state.updates == 3 and place == (0, 0) and elasticdl.world().formation == 1:
        session.current().group.across = Ends()
    if a.fault == "between" and state.updates == 3 and elasticdl.world().formation == 1:
        if place == (0, 0):
            end()
        if place[1] == 0:
            interrupt()


def evaluated(state):
    """Change a plain value after a collective of all ranks that fails for one local rank."""
    if a.fault == "plain" and state.updates == 3 and elasticdl.world().formation == 1:
        if place == (0, 0):
            end()
        if place[1] == 1:
            interrupt()
        state.epoch = 1


if a.fault == "state" and place == (0, 0):
    states._hand = lambda *sent: end() if elasticdl.world().formation == 2 else hand(*sent)


def batches():
    """Take all records once, in order, a part of each batch on each rank, unevenly; or as leased."""
    if not a.batch:
        yield from elasticdl.records(list(range(a.size)), 8, records_per_task=32)
    for first in range(0, a.size if a.batch else 0, a.batch or 1):
        yield torch.arange(first, first + a.batch)[elasticdl.world().rank::elasticdl.world().size]


@elasticdl.run
def train(state):
    assert mesh.get_local_rank() == int(os.environ["LOCAL_RANK"])  # in each world
    for x in batches():
        own = len(x) if a.batch else None
        optimizer.zero_grad()
        loss = model(x)
        elasticdl.weighted(loss, own).backward()
        faults(state) if a.fault == "reduction" else None
        elasticdl.allreduce_gradients(model, own)
        faults(state) if a.fault == "between" else None
        torch.nn.utils.clip_grad_norm_(rest, 100.0)  # a collective of the worker's processes
        with torch.no_grad():
            model.count.grad.mul_(session.current().weights()[1])  # a mean to a sum, so that the model counts
        optimizer.step()
        state.updates += 1
        if not a.busy or os.path.exists(a.busy):
            time.sleep(a.pause)
        elasticdl.step(loss)
        evaluated(state)
    if a.fault == "end" and elasticdl.world().formation == 1:
        if place == (0, 0):
            end()
        if place[1] == 1:
            interrupt()  # in an evaluation, of which the other process has its result
    return state.updates


updates = train(state)
shards = [p.detach().to_local() for p in model.parameters()]
momenta = [optimizer.state[p]["momentum_buffer"].to_local() for p in rest]
counts = model.count.detach().to_local().round().int().tolist()
print(
    json.dumps(
        {
            "ended": True,
            "updates": updates,
            "epoch": state.epoch,
            "pid": os.getpid(),
            "local": int(os.environ["LOCAL_RANK"]),
            "size": elasticdl.world().size,
            "formation": elasticdl.world().formation,
            "records": len(counts),
            "wrong": [(i, c) for i, c in enumerate(counts) if c != 1][:20],
            "weights": [v for p in rest for v in p.detach().to_local().reshape(-1).tolist()],
            "digest": hashlib.sha256(b"".join(t.numpy().tobytes() for t in shards + momenta)).hexdigest(),
        }
    ),
    flush=True,
)
