"""A script whose rank 1 needs many seconds until it is ready for its first world.

The argument is the number of seconds: far more than the construction of the group may take.
"""

import json
import os
import sys
import time
from datetime import timedelta

import torch

import elasticdl
from elasticdl import group, session

group.MAKE = timedelta(seconds=2)
session.MAKE = timedelta(seconds=2)
enter = session.Session._enter


def late(self, m):
    if os.environ["NUMBER"] == "1" and m["formation"] == 1:
        time.sleep(float(sys.argv[1]))
    return enter(self, m)


session.Session._enter = late
elasticdl.init()
model = torch.nn.Linear(1, 1)


@elasticdl.run
def train(state):
    group.MAKE = timedelta(seconds=60)
    for _ in range(3):
        elasticdl.step()


train(elasticdl.State(model=model))
print(json.dumps({"formation": elasticdl.world().formation}), flush=True)
