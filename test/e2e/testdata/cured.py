"""Rank 1 fails on its own at step 10, until the file "cured" is there; all end when the file
"enough" is. A snapshot has the step."""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

home = sys.argv[1]
snapshot = os.path.join(home, "step")


@record
def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    step = 0
    if os.path.exists(snapshot):
        with open(snapshot) as file:
            step = int(file.read())
    while True:
        enough = torch.tensor([float(os.path.exists(os.path.join(home, "enough")))])
        dist.all_reduce(enough)
        if enough > 0:
            break
        step += 1
        print(f"step {step} rank {rank} world {world} pid {os.getpid()}", flush=True)
        if rank == 1 and step >= 10 and not os.path.exists(os.path.join(home, "cured")):
            raise ValueError("the vocabulary has no word 17")
        if rank == 0:
            with open(snapshot + ".new", "w") as file:
                file.write(str(step))
            os.replace(snapshot + ".new", snapshot)
        time.sleep(0.1)
    dist.destroy_process_group()


main()
