"""Print what PyTorch needs of this machine.

The lines are `object PATH`, a shared object or the interpreter, and `tree PATH`, of Python code.
"""
import os
import sys
import sysconfig

import torch
import torch.distributed
import torch.utils.data

if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("gloo")  # what it loads late is loaded now
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    for batch in torch.utils.data.DataLoader(torch.zeros(4, 2), num_workers=1):
        net(batch).sum().backward()
    torch.distributed.destroy_process_group()
    code = sysconfig.get_path("stdlib")
    trees = {code}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if "." in name or name == "__main__" or not path or path.startswith(code + os.sep):
            continue
        trees.add(os.path.dirname(path) if os.path.basename(path).startswith("__init__.") else path)
    with open("/proc/self/maps") as maps:
        objects = {
            os.path.realpath(line.split(None, 5)[5].rstrip("\n")) for line in maps if len(line.split(None, 5)) == 6
        }
    for path in sorted(objects):
        if os.path.isfile(path) and not any(path.startswith(tree + os.sep) for tree in trees):
            print("object", path)
    for path in sorted(trees):
        print("tree", path)
