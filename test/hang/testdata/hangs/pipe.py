"""Rank 1 reads a pipe that nobody writes to, and rank 0 waits in an all_reduce."""
import os
import torch, torch.distributed as dist

dist.init_process_group("gloo")
print("training", flush=True)
if dist.get_rank() == 1:
    read, write = os.pipe()
    os.read(read, 1)  # here
dist.all_reduce(torch.ones(4))
