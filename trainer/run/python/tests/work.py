"""A script that trains a model that counts its records.

Parameter i rises by one each time that record i is in an update.
"""

import argparse
import ctypes
import json
import os
import time

import torch

import elasticdl
from elasticdl import saving, session

a = argparse.ArgumentParser()
a.add_argument("--size", type=int, default=2000)
a.add_argument("--epochs", type=int, default=1)
a.add_argument("--batch", type=int, default=16)
a.add_argument("--workers", type=int, default=0)
a.add_argument("--task", type=int, default=64)
a.add_argument("--pause", type=float, default=0.0)
a.add_argument("--hold", action="store_true")
a.add_argument("--manual", action="store_true")
a.add_argument("--checkpoint", default="")
a.add_argument("--every", type=int, default=5)
a.add_argument("--notice", default="")
a.add_argument("--backend", default="gloo")
a.add_argument("--fail", type=int, default=0)
a.add_argument("--out", default="")
# of the model, if not as many as there are records
a.add_argument("--rows", type=int, default=0)
a.add_argument("--seed", type=int, default=0)
a.add_argument("--ordered", action="store_true")
a.add_argument("--same", action="store_true")
# that is reported, if not the loss
a.add_argument("--loss", type=float)
# where a process is lost while the others wait in a collective of the script's: "before" or "after"
# the update
a.add_argument("--lost", default="")
a = a.parse_args()
torch.set_num_threads(1)


class Data:
    def __len__(self):
        return a.size

    def __getitem__(self, i):
        return torch.tensor(i)


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.count = torch.nn.Parameter(torch.zeros(a.rows or a.size, dtype=torch.float64))
        self.other = torch.nn.Linear(200, 200)

    def forward(self, x):
        return -self.count[x].mean() + 0 * self.other(torch.ones(1, 200)).sum()


if a.checkpoint:
    elasticdl.checkpoint(a.checkpoint, every=a.every, same_data=a.same)
world = elasticdl.init(a.backend)
model = Counts()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.0)
state = elasticdl.State(model=model, optimizer=optimizer, updates=0)
data = Data()


def notice(state):
    """Write a checkpoint, and the time of the end, when the process will be ended."""
    if a.notice and not os.path.exists(a.notice) and elasticdl.leaving() is not None:
        elasticdl.checkpoint()
        with open(a.notice + ".tmp", "w") as f:
            json.dump({"deadline": elasticdl.leaving(), "updates": state.updates}, f)
        os.rename(a.notice + ".tmp", a.notice)


def metric(state, place):
    """Sum a metric over all ranks; one of them is lost there, once."""
    if a.lost == place and state.updates == 5 + (place == "after") and elasticdl.world().formation == 1:
        if os.environ["NUMBER"] == "2":
            os.kill(os.getpid(), 9)
        torch.distributed.all_reduce(torch.ones(1))


def hold():
    """Fork a child without Python's knowledge; it has copies of all sockets until it is killed."""
    if a.hold:
        if ctypes.CDLL(None).fork() == 0:
            while True:
                ctypes.CDLL(None).usleep(100000)


@elasticdl.run
def train(state):
    net = model if a.manual else elasticdl.DistributedDataParallel(model)
    hold()
    for x in elasticdl.records(data, a.batch, epochs=a.epochs, shuffle=not a.ordered, workers=a.workers, seed=a.seed,
                               records_per_task=a.task):
        optimizer.zero_grad()
        loss = net(x)
        loss.backward()
        if a.manual:
            elasticdl.allreduce_gradients(model)
        if a.fail and state.updates == a.fail:
            torch.ones(2) @ torch.ones(3)
        with torch.no_grad():
            # a mean to a sum, so that the model counts
            model.count.grad *= session.current().weights()[1]
        metric(state, "before")
        optimizer.step()
        state.updates += 1
        metric(state, "after")
        if a.pause:
            time.sleep(a.pause)
        elasticdl.step(loss if a.loss is None else a.loss)
        if a.fail and saving.declared:
            saving.declared.settle()  # the checkpoint of each round is written before the failure
        notice(state)
    return state.updates


updates = train(state)
torch.distributed.all_reduce(torch.ones(1))
counts = model.count.detach().round().int().tolist()[:a.size]
print(
    json.dumps(
        {
            "ended": True,
            "updates": updates,
            "size": elasticdl.world().size,
            "formation": elasticdl.world().formation,
            "wrong": [(i, c) for i, c in enumerate(counts) if c != (counts[0] if a.epochs > 9 else a.epochs)][:20],
            "epochs": counts[0],
        }
    ),
    flush=True,
)
