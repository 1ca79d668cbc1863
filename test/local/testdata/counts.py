"""Trains a model that counts its records, with the package elasticdl: weight i rises by one each
time that record i is in an update.

Until the file "enough" is there a step lasts a while, so that there is time for what the test does.
At the end each rank says what it has; if the file "hold" is there, not before it has a file
"end-RANK", or the other has ended.
"""
import os
import sys
import time

import torch

import elasticdl

home, size, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
# a model with more rows fits data sets of several sizes
task, rows = (int(x) for x in sys.argv[4:] or (64, size))
EPOCHS = 2


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return size

    def __getitem__(self, i):
        return torch.tensor(i)


elasticdl.checkpoint(os.environ.get("CHECKPOINT", os.path.join(home, "checkpoint")), every=10)
elasticdl.init()
model = torch.nn.Linear(rows, 1, bias=False).double()
torch.nn.init.zeros_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
state = elasticdl.State(model=model, optimizer=optimizer, steps=0)


@elasticdl.run
def train(state):
    net = elasticdl.DistributedDataParallel(model)
    for x in elasticdl.records(Numbers(), 8, epochs=EPOCHS, records_per_task=task):
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
rank = elasticdl.world().rank
print(f"after the training: rank {rank} pid {os.getpid()}", flush=True)
while os.path.exists(os.path.join(home, "hold")) and not os.path.exists(os.path.join(home, f"end-{rank}")):
    time.sleep(0.02)
counts = model.weight.detach().round().int().flatten().tolist()[:size]
wrong = [(i, n) for i, n in enumerate(counts) if n != EPOCHS]
print(f"counted {len(counts) - len(wrong)} right, {len(wrong)} wrong: {wrong[:20]}", flush=True)
sys.exit(1 if wrong else 0)
