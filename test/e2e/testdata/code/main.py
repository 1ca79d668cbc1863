"""Prints how it came, its neighbour, and where it runs."""
import os
import sys

from words.about import SAYS

if sys.argv[1] == "upload":
    with open("scratch.txt", "w") as file:  # in a copy of the worker's own
        file.write(SAYS)
print(
    f"way {sys.argv[1]}: {SAYS} in {os.getcwd()}, rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}", flush=True
)
