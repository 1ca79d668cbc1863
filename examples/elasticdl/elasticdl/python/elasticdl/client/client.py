"""Run elasticdl train with the flags of 2019, which named no command."""
import os
import sys

try:
    os.execvp("elasticdl", ["elasticdl", "train", *sys.argv[1:]])
except FileNotFoundError:
    sys.exit("elasticdl: not found on PATH; `make build` in the repository makes build/elasticdl")
