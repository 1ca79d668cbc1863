"""Learns to tell four clouds of points apart, with the package elasticdl, and counts its records:
weight i of the counter rises by one each time that record i is in an update.

Records are fetched by a loader's processes, which are started as the third argument says. Until the
file "enough" is there a step lasts a while, so that there is time for what the test does. At the
end each rank says what it has counted, and how much of the test set is right.
"""
import multiprocessing
import os
import sys
import time

import torch

EPOCHS = 2
TESTS = 4000


def points(n, seed):
    centres = torch.randn(4, 16, generator=torch.Generator().manual_seed(7)) * 0.55
    chance = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (n,), generator=chance)
    return centres[labels] + torch.randn(n, 16, generator=chance), labels


class Points(torch.utils.data.Dataset):
    def __init__(self, n):
        self.x, self.y = points(n, 1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return i, self.x[i], self.y[i]


class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.classifier = torch.nn.Linear(16, 4)
        for parameter in self.classifier.parameters():  # not by chance
            torch.nn.init.zeros_(parameter)
        self.counter = torch.nn.Parameter(torch.zeros(n))

    def forward(self, i, x, y):
        return torch.nn.functional.cross_entropy(self.classifier(x), y) - self.counter[i].mean()


def main(home, size, start, pause):
    import elasticdl

    multiprocessing.set_start_method(start, force=True)
    elasticdl.init()
    data, model = Points(size), Model(size)
    optimizer = torch.optim.SGD(
        [{"params": model.classifier.parameters(), "lr": 0.001}, {"params": [model.counter], "lr": 1.0}]
    )
    state = elasticdl.State(model=model, optimizer=optimizer, steps=0)

    @elasticdl.run
    def train(state):
        net = elasticdl.DistributedDataParallel(model)
        for i, x, y in elasticdl.records(data, 4, epochs=EPOCHS, workers=2, records_per_task=64):
            optimizer.zero_grad()
            loss = net(i, x, y)
            loss.backward()
            # of each record of the global batch the same
            share = -model.counter.grad[model.counter.grad != 0].max()
            # the sum over records: how many are in a batch makes no other training
            for parameter in model.parameters():
                parameter.grad /= share
            optimizer.step()
            state.steps += 1
            world = elasticdl.world()
            print(f"step {state.steps} rank {world.rank} world {world.size} pid {os.getpid()}", flush=True)
            if not os.path.exists(os.path.join(home, "enough")):
                time.sleep(pause)
            elasticdl.step(loss)

    train(state)
    counts = model.counter.detach().round().int().tolist()
    wrong = [(i, n) for i, n in enumerate(counts) if n != EPOCHS]
    x, y = points(TESTS, 2)
    right = (model.classifier(x).argmax(1) == y).sum().item()
    print(
        f"counted {len(counts) - len(wrong)} right, {len(wrong)} wrong: {wrong[:20]}; {right} of {TESTS} tests right",
        flush=True,
    )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
