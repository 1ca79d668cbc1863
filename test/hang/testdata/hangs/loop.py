"""A loop in C of rank 1 never ends, and never gives up the interpreter's lock."""
import collections, itertools
import torch, torch.distributed as dist

dist.init_process_group("gloo")
print("training", flush=True)
if dist.get_rank() == 1:
    collections.deque(itertools.repeat(0), maxlen=0)  # here
dist.all_reduce(torch.ones(4))
