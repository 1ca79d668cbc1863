"""Trains a model whose layers are split over two ranks, with torch.distributed.tensor.parallel, and
keeps a snapshot.

It runs in worlds of an even size only, and reports it as scripts do: by an assertion. It continues
until the file "enough" is there.
"""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

home, pause = sys.argv[1], float(sys.argv[2])
enough, snapshot = os.path.join(home, "enough"), os.path.join(home, "snapshot.pt")
split = 2
world = int(os.environ["WORLD_SIZE"])
assert world % split == 0, f"World size {world} needs to be divisible by TP size {split}"
mesh = init_device_mesh("cpu", (world // split, split), mesh_dim_names=("data", "tensor"))
rank = dist.get_rank()
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
step = 0
if os.path.exists(snapshot):
    saved = torch.load(snapshot)
    model.load_state_dict(saved["model"])
    step = saved["step"]
model = parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    met = torch.tensor([float(os.path.exists(enough)), float(step)])
    dist.all_reduce(met)
    assert met[1] == step * world, met
    if met[0] > 0:
        break
    x = torch.randn(8, 20)
    dist.broadcast(x, 0)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x[:, :1]).backward()
    optimizer.step()
    step += 1
    whole = {name: value.full_tensor() for name, value in model.state_dict().items()}
    if rank == 0:
        torch.save({"model": whole, "step": step}, snapshot + ".new")
        os.replace(snapshot + ".new", snapshot)
    print(
        f"step {step} rank {rank} world {world} pid {os.getpid()} restarts {os.environ['TORCHELASTIC_RESTART_COUNT']}",
        flush=True,
    )
    time.sleep(pause)
print(f"rank {rank} ends after step {step}", flush=True)
dist.destroy_process_group()
