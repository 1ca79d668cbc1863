"""A model that counts its records, for the frameworks of `make test-frameworks`: weight i rises by
one each time that record i is in an update.

Until the file "enough" is there a step lasts a while, so that there is time for what the test does.
"""
import os
import sys
import time

import torch

import elasticdl
from elasticdl.session import current

EPOCHS = 2
home, size, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return size

    def __getitem__(self, i):
        return {"x": torch.tensor(i), "labels": torch.tensor(0)}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.counts = torch.nn.Linear(size, 1, bias=False)
        torch.nn.init.zeros_(self.counts.weight)

    def forward(self, x, labels=None):
        taken = -self.counts(torch.nn.functional.one_hot(x, size).float())
        return {"loss": taken.sum() if self.training else taken.mean()}


class Counter(torch.optim.SGD):
    """Adds to the weight of each record how often it is in the global batch.

    A record may be there twice, of two epochs. The momentum is never used, but a part of the state.
    """

    def __init__(self, parameters):
        super().__init__(parameters, lr=1.0, momentum=1e-30)

    def step(self, closure=None):
        if closure is not None:
            closure()
        own = [sum(rank) for rank in zip(*([row[1] for row in h.rows()] for h in current().headers))]
        for group in self.param_groups:
            for p in group["params"]:
                if len(set(own) - {0}) == 1:
                    p.grad /= p.grad[p.grad != 0].abs().min()
                    p.grad.round_()
                else:
                    # The gradients of ranks differ. That is so at the end of the last epoch.
                    p.grad.sign_()
        super().step()


def stepped(step):
    world = elasticdl.world()
    print(f"step {step} rank {world.rank} world {world.size} pid {os.getpid()}", flush=True)
    if not os.path.exists(os.path.join(home, "enough")):
        time.sleep(pause)


def report(model):
    counts = model.counts.weight.detach().round().int().flatten().tolist()
    wrong = [(i, n) for i, n in enumerate(counts) if n != EPOCHS]
    print(f"counted {len(counts) - len(wrong)} right, {len(wrong)} wrong: {wrong[:20]}", flush=True)
    sys.exit(1 if wrong else 0)
