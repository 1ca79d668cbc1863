"""Steps with DistributedDataParallel and keeps a snapshot, as scripts do that know nothing of who
runs them.

It continues until the file "enough" is there, and says what it has learnt. Each step is checked:
all ranks of the world that the environment says have taken part, once.
"""
import os
import sys
import time

import torch
import torch.distributed as dist

home, pause = sys.argv[1], float(sys.argv[2])
enough, snapshot = os.path.join(home, "enough"), os.path.join(home, "snapshot.pt")
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
assert (rank, world) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])), os.environ
torch.manual_seed(1)
model = torch.nn.Linear(20, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = 0
if os.path.exists(snapshot):
    saved = torch.load(snapshot)
    model.load_state_dict(saved["model"])
    step = saved["step"]
net = torch.nn.parallel.DistributedDataParallel(model)
while True:
    met = torch.tensor([1.0, 2.0 ** rank, float(os.path.exists(enough)), float(step)])
    dist.all_reduce(met)
    assert met[0] == world and met[1] == 2.0 ** world - 1 and met[3] == step * world, met
    if met[2] > 0:
        break
    x = torch.randn(8, 20)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(net(x), x[:, :1]).backward()
    optimizer.step()
    step += 1
    if rank == 0:
        torch.save({"model": model.state_dict(), "step": step}, snapshot + ".new")
        os.replace(snapshot + ".new", snapshot)
    print(
        f"step {step} rank {rank} world {world} pid {os.getpid()} restarts {os.environ['TORCHELASTIC_RESTART_COUNT']}",
        flush=True,
    )
    time.sleep(pause)
x = torch.randn(1000, 20)
print(
    f"rank {rank} ends after step {step} with loss {torch.nn.functional.mse_loss(model(x), x[:, :1]).item():.6f}",
    flush=True,
)
dist.destroy_process_group()
