"""Run the command elasticdl, as python -m elasticdl.python.elasticdl.client."""
import os
import sys

try:
    os.execvp("elasticdl", ["elasticdl", *sys.argv[1:]])
except FileNotFoundError:
    sys.exit("elasticdl: not found on PATH; `make build` in the repository makes build/elasticdl")
