"""Waits for the workers of a data loader, which compute."""
import multiprocessing, sys, time


def prepare(end):
    while time.time() < end:
        sorted(range(10_000), key=lambda i: -i)


with multiprocessing.get_context("fork").Pool(2) as pool:
    pool.map(prepare, [time.time() + float(sys.argv[1])] * 2)
