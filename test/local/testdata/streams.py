"""Trains a model that counts its records on shards whose lengths nobody knows before they are read:
weight i rises by one each time that record i is in an update.

The shards are the files DIRECTORY/shards/*.txt, with a number on each line. Until the file "enough"
is there a step lasts a while, so that there is time for what the test does.
"""
import glob
import os
import sys
import time

import torch

import elasticdl

home, rows, pause, workers = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
EPOCHS = 2
SHARDS = sorted(glob.glob(os.path.join(home, "shards", "*.txt")))


def lines(path):
    with open(path) as file:
        for line in file:
            yield torch.tensor(int(line))


elasticdl.checkpoint(os.path.join(home, "checkpoint.pt"), every=10)
elasticdl.init()
model = torch.nn.Linear(rows, 1, bias=False).double()
torch.nn.init.zeros_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
state = elasticdl.State(model=model, optimizer=optimizer, steps=0)


@elasticdl.run
def train(state):
    net = elasticdl.DistributedDataParallel(model)
    for x in elasticdl.stream(SHARDS, lines, batch_size=8, epochs=EPOCHS, seed=1, workers=workers):
        optimizer.zero_grad()
        loss = -net(torch.nn.functional.one_hot(x, rows).double()).mean()
        loss.backward()
        # of each record of the global batch the same share
        grad = model.weight.grad
        grad /= -grad[grad != 0].max()
        optimizer.step()
        state.steps += 1
        world = elasticdl.world()
        print(f"step {state.steps} rank {world.rank} world {world.size} pid {os.getpid()}", flush=True)
        if not os.path.exists(os.path.join(home, "enough")):
            time.sleep(pause)
        elasticdl.step(loss)


train(state)
counts = model.weight.detach().round().int().flatten().tolist()
wrong = [(i, n) for i, n in enumerate(counts) if n != EPOCHS]
print(f"counted {len(counts) - len(wrong)} right, {len(wrong)} wrong: {wrong[:20]}", flush=True)
sys.exit(1 if wrong else 0)
