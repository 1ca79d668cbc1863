"""PyTorch's side of the training-step benchmarks.

Reads lines "MODEL STEPS" and answers each with the milliseconds of one
forward + backward + SGD update of that model, batch 64: the median of STEPS,
in the faster of the two memory formats. OMP_NUM_THREADS says on how many threads.
"""
import statistics
import sys
import time

import torch
from torch import nn
import torch.nn.functional as F

BATCH = 64


def mnist_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3), nn.ReLU(inplace=True),
        nn.BatchNorm2d(64, eps=1e-3, momentum=0.01),
        nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 10))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(inplace=True), nn.Linear(256, 10))


def small_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 8, 5), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 5), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 10))


class Residual(nn.Module):
    """A block with a shortcut without parameters (type A)."""

    def __init__(self, inputs, filters):
        super().__init__()
        self.stride, self.more = filters // inputs, filters - inputs
        self.conv1 = nn.Conv2d(inputs, filters, 3, self.stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(filters)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        if self.more:
            x = F.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, 0, self.more))
        return F.relu(y.add_(x), inplace=True)


def resnet20():
    layers, inputs = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)], 16
    for filters in (16, 32, 64):
        for _ in range(3):
            layers.append(Residual(inputs, filters))
            inputs = filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


MODELS = {"mnist_cnn": mnist_cnn, "mlp": mlp, "small_cnn": small_cnn, "resnet20": resnet20}
IMAGES = {"resnet20": (3, 32, 32)}
built = {}


def stepper(name, layout):
    if (name, layout) not in built:
        torch.manual_seed(1)
        model = MODELS[name]().to(memory_format=layout)
        x = torch.rand(BATCH, *IMAGES.get(name, (1, 28, 28))).to(memory_format=layout)
        y = torch.randint(0, 10, (BATCH,))
        update = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)

        def step():
            update.zero_grad(set_to_none=True)
            F.cross_entropy(model(x), y).backward()
            update.step()

        built[name, layout] = step
    return built[name, layout]


def measure(name, steps):
    medians = []
    for layout in (torch.contiguous_format, torch.channels_last):
        step = stepper(name, layout)
        step()
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        medians.append(statistics.median(times))
    return min(medians) * 1e3


for line in sys.stdin:
    name, steps = line.split()
    print(measure(name, int(steps)), flush=True)
