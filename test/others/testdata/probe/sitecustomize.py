"""Note each step of torch's optimizers in a file of the process, for any program.

Python imports this module at its start if its directory is on PYTHONPATH. It imports nothing of
torch itself: it waits until the program does.
"""

import importlib.abc
import importlib.util
import os
import sys
import time

WATCHED = "torch.optim.optimizer"
_counts = {}


def _stepped(optimizer, args, kwargs):
    if not optimizer.param_groups or not any(group["params"] for group in optimizer.param_groups):
        return
    pid = os.getpid()
    # a process that was forked begins at 1
    _counts[pid] = _counts.get(pid, 0) + 1
    line = f"{time.time():.6f} {os.environ.get('RANK', 0)} {os.environ.get('WORLD_SIZE', 1)} {_counts[pid]}\n"
    with open(os.path.join(os.environ["OTHERS_STEPS"], str(pid)), "a") as file:
        file.write(line)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != WATCHED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            module.register_optimizer_step_post_hook(_stepped)

        spec.loader.exec_module = exec_module
        return spec


if "OTHERS_STEPS" in os.environ:
    sys.meta_path.insert(0, _Finder())
