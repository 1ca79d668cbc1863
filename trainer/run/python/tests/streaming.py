"""A script that trains on shards of unknown length; its model counts its records.

Parameter i rises by one each time that record i is in an update. Each call of ``open`` is printed.
"""

import argparse
import json
import os
import time

import torch

import elasticdl
from elasticdl import session

a = argparse.ArgumentParser()
# the number of records of each shard
a.add_argument("--lengths", default="50,0,33,64,7,48,20,90")
a.add_argument("--epochs", type=int, default=1)
a.add_argument("--batch", type=int, default=16)
a.add_argument("--workers", type=int, default=0)
a.add_argument("--pause", type=float, default=0.0)
a.add_argument("--seek", action="store_true")
a.add_argument("--checkpoint", default="")
a = a.parse_args()
torch.set_num_threads(1)
lengths = [int(n) for n in a.lengths.split(",")]
first = [sum(lengths[:i]) for i in range(len(lengths))]
size = sum(lengths)
names = ["shard-%d" % i for i in range(len(lengths))]


def say(message):
    """Print a message at once: processes of a loader write to the same file."""
    os.write(1, json.dumps(message).encode() + b"\n")


def read(name):
    i = int(name[6:])
    assert torch.utils.data.get_worker_info() is None  # a data set would divide the shard again
    say({"opens": name})
    for record in range(first[i], first[i] + lengths[i]):
        yield torch.tensor(record)


def seek(name, start, epoch):
    i = int(name[6:])
    assert 0 <= epoch < 1000
    say({"opens": name, "start": start})
    return (torch.tensor(record) for record in range(first[i] + start, first[i] + lengths[i]))


if a.checkpoint:
    elasticdl.checkpoint(a.checkpoint, every=3)
elasticdl.init()
model = torch.nn.Linear(1, size, bias=False).double()
torch.nn.init.zeros_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
largest = 0


@elasticdl.run
def train(state):
    global largest
    net = elasticdl.DistributedDataParallel(model)
    for batch in elasticdl.stream(names, seek if a.seek else read, a.batch, epochs=a.epochs, seed=3, workers=a.workers):
        largest = max(largest, len(batch))
        optimizer.zero_grad()
        (-net(torch.ones(1, 1).double())[0, batch].mean()).backward()
        # a mean to a sum, so that the model counts
        model.weight.grad *= session.current().weights()[1]
        optimizer.step()
        time.sleep(a.pause)
        elasticdl.step()


train(elasticdl.State(model=model, optimizer=optimizer))
counts = model.weight.detach().reshape(-1).round().int().tolist()
print(
    json.dumps(
        {
            "wrong": [(i, c) for i, c in enumerate(counts) if c != (counts[0] if a.epochs > 9 else a.epochs)][:20],
            "epochs": counts[0],
            "largest": largest,
            "formation": elasticdl.world().formation,
        }
    ),
    flush=True,
)
