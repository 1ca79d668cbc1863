"""Rank 1 sleeps in its data loading for ever, and rank 0 waits for it in an all_reduce."""
import time
import torch, torch.distributed as dist


def load():
    while dist.get_rank() == 1:
        time.sleep(1_000_000)  # here
    return torch.ones(4)


dist.init_process_group("gloo")
print("training", flush=True)
dist.all_reduce(load())
