"""Import torch, and what else workload.py imports, and make an optimizer.

    first.py UNTIL DIRECTORY MEGABYTES [transformers]

The script writes the time of its first line after the imports, and then one step. torch imports
more modules with the first optimizer, which the fork server of `elasticdl run` has imported.
"""
import torch

import workload

torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.01)
workload.Log(1, pause=0).step(1)
