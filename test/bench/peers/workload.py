"""The common parts of the bench's scripts: the model, the minibatch, and the log of steps.

    SCRIPT UNTIL DIRECTORY MEGABYTES [transformers | held]

It is the last import of a script. When it is imported, it writes "FIRST UNIXTIME" to
DIRECTORY/PID.steps: the script's own first line is the next.
"""
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

if "transformers" in sys.argv[4:]:
    # what scripts with Hugging Face's Trainer import
    from datasets import Dataset  # noqa: F401
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments  # noqa: F401

UNTIL, DIRECTORY, MEGABYTES = float(sys.argv[1]), sys.argv[2], int(sys.argv[3])
BATCH = 8
LAYERS = 4  # of the large model
HELD = "held" in sys.argv[4:]
PARTS = 8  # tensors that are held
# seconds of each step in which a GPU would be at work, and a CPU is free
PAUSE = 0.02


class Adapter(nn.Module):
    """A small model that is trained, and a large one that is only kept, as with an adapter.

    Each process begins with other values of the large one, so that a newcomer has to take them.
    """

    def __init__(self, trained):
        super().__init__()
        self.trained = trained
        self.held = nn.ParameterList(
            nn.Parameter(torch.full((MEGABYTES * 1000000 // 4 // PARTS,), float(os.getpid())), requires_grad=False)
            for _ in range(PARTS))

    def forward(self, x):
        return self.trained(x)


def make():
    """Return model, loss, and a minibatch."""
    if MEGABYTES == 0 or HELD:
        net = nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.ReLU(inplace=True),
            nn.Conv2d(32, 64, 3), nn.ReLU(inplace=True),
            nn.BatchNorm2d(64, eps=1e-3, momentum=0.01),
            nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 10))
        if HELD:
            net = Adapter(net)
        return net, F.cross_entropy, torch.rand(BATCH, 1, 28, 28), torch.randint(0, 10, (BATCH,))
    width = int((MEGABYTES * 1e6 / 4 / LAYERS) ** 0.5)
    net = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(LAYERS)])
    return net, F.mse_loss, torch.rand(BATCH, width), torch.rand(BATCH, width)


def over():
    return time.time() > UNTIL


class Log:
    """Writes a line of each step to the process's own file."""

    def __init__(self, world=None, pause=PAUSE):
        self.world, self.pause = world, pause

    def step(self, size, world=None):
        FILE.write("STEP %d %d %.6f\n" % (size, self.world if world is None else world, time.time()))
        if self.pause:
            time.sleep(self.pause)


FILE = open(os.path.join(DIRECTORY, "%d.steps" % os.getpid()), "w", buffering=1)
FILE.write("FIRST %.6f\n" % time.time())
