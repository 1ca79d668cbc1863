"""Ends as its arguments say: rank 1 on its own, with an exception or early with 0; the others when
the file "enough" is there."""
import os
import sys
import time

from torch.distributed.elastic.multiprocessing.errors import record

home, how = sys.argv[1:]


@record
def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    step = 0
    while not os.path.exists(os.path.join(home, "enough")):
        step += 1
        print(
            f"step {step} rank {rank} world {world} pid {os.getpid()} restarts {os.environ['TORCHELASTIC_RESTART_COUNT']}",
            flush=True,
        )
        time.sleep(0.1)
        if rank == 1 and step == 5:
            if how == "early":
                return
            raise ValueError("rank 1 has had enough")


if __name__ == "__main__":
    main()
