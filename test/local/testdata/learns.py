"""Learns to tell four clouds of points apart, with the package elasticdl, and counts its records:
weight i of the counter rises by one each time that record i is in an update.

With the third argument "fork" or "spawn", processes of a loader are started so. "stream" has them
read shards of unknown length; "sharded" trains replicas of a sharded model. Until the file
"enough" is there a step lasts a while, so that there is time for what the test does. At the end
each rank says what it has counted, and how much of the test set is right.
"""
import functools
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


def part(data, shard):
    """Yield the records of a shard, "FIRST-END"."""
    for i in range(*map(int, shard.split("-"))):
        yield data[i]


def whole(tensor):
    """Return the whole of a tensor that may be sharded."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def batches(data, start):
    """Return what yields the batches of a world. The shards are of lengths from 1 to some 100."""
    import elasticdl

    if start != "stream":
        workers = 0 if start == "sharded" else 2
        return functools.partial(elasticdl.records, data, 4, epochs=EPOCHS, workers=workers, records_per_task=64)
    chance = torch.Generator().manual_seed(3)
    ends = sorted({0, len(data), *torch.randint(len(data), (len(data) // 50,), generator=chance).tolist()})
    shards = ["%d-%d" % pair for pair in zip(ends, ends[1:])]
    return functools.partial(elasticdl.stream, shards, functools.partial(part, data), 4, epochs=EPOCHS, workers=2)


def main(home, size, start, pause):
    import elasticdl

    if start == "sharded":
        from torch.distributed.fsdp import fully_shard

        elasticdl.checkpoint(os.path.join(home, "checkpoint"), every=10)
        elasticdl.init(sharded="worker")
    else:
        multiprocessing.set_start_method("fork" if start == "stream" else start, force=True)
        elasticdl.init()
    torch.manual_seed(0)
    data, model = Points(size), Model(size)
    if start == "sharded":
        fully_shard(model, mesh=elasticdl.worker_mesh())
    optimizer = torch.optim.SGD(
        [{"params": model.classifier.parameters(), "lr": 0.001}, {"params": [model.counter], "lr": 1.0}]
    )
    state = elasticdl.State(model=model, optimizer=optimizer, steps=0)
    feed = batches(data, start)

    @elasticdl.run
    def train(state):
        net = model if start == "sharded" else elasticdl.DistributedDataParallel(model)
        for i, x, y in feed():
            optimizer.zero_grad()
            loss = net(i, x, y)
            if start == "sharded":
                elasticdl.weighted(loss).backward()
                elasticdl.allreduce_gradients(model)
            else:
                loss.backward()
            # of each record of the global batch the same
            counted = whole(model.counter.grad)
            share = float(-counted[counted != 0].max())
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
    counts = whole(model.counter.detach()).round().int().tolist()
    wrong = [(i, n) for i, n in enumerate(counts) if n != EPOCHS]
    x, y = points(TESTS, 2)
    weight, bias = (whole(p.detach()) for p in model.classifier.parameters())
    right = ((x @ weight.T + bias).argmax(1) == y).sum().item()
    print(
        f"counted {len(counts) - len(wrong)} right, {len(wrong)} wrong: {wrong[:20]}; {right} of {TESTS} tests right",
        flush=True,
    )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
