"""Two threads of rank 1 wait for each other's lock, and rank 0 waits in an all_reduce."""
import threading, time
import torch, torch.distributed as dist

first, second = threading.Lock(), threading.Lock()


def other():
    with second:
        time.sleep(2)
        with first:
            pass


dist.init_process_group("gloo")
print("training", flush=True)
if dist.get_rank() == 1:
    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    with first:
        time.sleep(2)
        second.acquire()  # here
dist.all_reduce(torch.ones(4))
