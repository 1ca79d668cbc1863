"""A Python that has imported torch, from which the processes of tests are forked.

It reads {"argv", "env", "log"}, and writes {"pid"} and {"exit", "code"}.
"""

import json
import os
import runpy
import select
import sys

import torch  # noqa: F401
import torch.distributed  # noqa: F401
import torch.utils.data  # noqa: F401

# torch 2.x imports some 800 modules with the first optimizer
torch.optim.SGD([torch.zeros(1)], lr=1.0)


def settle(order):
    """Turn this process into one of a test."""
    os.setsid()
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(order["env"])
    sys.argv = order["argv"]
    sys.path[0:0] = [order["env"]["PYTHONPATH"], os.path.dirname(order["argv"][0])]


def say(**m):
    os.write(1, json.dumps(m).encode() + b"\n")


def serve():
    """Fork the processes that are ordered. Return in each of them."""
    rest = b""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
            while pid:
                say(exit=pid, code=-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
                pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            pass
        if not select.select([0], [], [], 0.004)[0]:
            continue
        data = os.read(0, 1 << 16)
        if not data:
            sys.exit()
        rest += data
        while b"\n" in rest:
            line, rest = rest.split(b"\n", 1)
            order = json.loads(line)
            pid = os.fork()
            if pid == 0:
                return settle(order)
            say(pid=pid)


serve()
# and the interpreter ends as after any script
runpy.run_path(sys.argv[0], run_name="__main__")
