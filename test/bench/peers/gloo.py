"""Run gloo's side of the all-reduce benchmarks.

    gloo.py SIZE [NAMESPACE…]

torch.distributed runs on loopback, or each rank in a network namespace with an eth0. The script
reads lines "FLOATS CALLS BATCHES" and answers each with the seconds that one all-reduce of that
many float32 takes: of the median of BATCHES batches of CALLS, one after the other, on SIZE
processes.
"""
import ctypes
import multiprocessing
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist

os.environ["GLOO_SOCKET_IFNAME"] = "eth0" if sys.argv[2:] else "lo"
torch.set_num_threads(1)


def measure(floats, calls, batches):
    data = torch.empty(floats).fill_(0)
    for _ in range(max(calls // 10, 2)):
        dist.all_reduce(data)
    times = []
    for _ in range(batches):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(data)
        times.append(time.perf_counter() - start)
    return statistics.median(times) / calls


def enter(namespace):
    CLONE_NEWNET = 0x40000000
    libc = ctypes.CDLL(None, use_errno=True)
    with open(namespace) as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns", namespace)


def rank(number, size, path, orders):
    if sys.argv[2:]:
        enter(sys.argv[2 + number])
    dist.init_process_group("gloo", init_method="file://" + path, rank=number, world_size=size)
    while (order := orders()) is not None:
        seconds = measure(*order)
        if number == 0:
            print(seconds, flush=True)


def main(size):
    pipes = [multiprocessing.Pipe(duplex=False) for _ in range(1, size)]

    def next_order():
        line = sys.stdin.readline()
        order = [int(word) for word in line.split()] if line else None
        for _, send in pipes:
            send.send(order)
        return order

    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "init")
        others = [multiprocessing.Process(target=rank, args=(i + 1, size, path, receive.recv), daemon=True)
                  for i, (receive, _) in enumerate(pipes)]
        for p in others:
            p.start()
        rank(0, size, path, next_order)
        for p in others:
            p.join()


multiprocessing.set_start_method("fork")
main(int(sys.argv[1]))
