"""Train a line with DistributedDataParallel; the smallest script that survives a restart.

Nothing in it knows of ElasticDL: it reads what torchrun sets, keeps a snapshot, and continues where
that ends.
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def load(path, model, optimizer):
    """Return the step to continue with."""
    if not os.path.exists(path):
        return 0
    saved = torch.load(path, map_location="cpu")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return saved["step"]


def save(path, model, optimizer, step):
    """Write the snapshot to a temporary file and rename it: a kill leaves the old one intact."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path + ".new")
    os.replace(path + ".new", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch_size", type=int, default=32, help="of each process")
    parser.add_argument("--snapshot", default="snapshot.pt", help="on a volume that all nodes have")
    parser.add_argument("--every", type=int, default=10, help="steps between snapshots")
    args = parser.parse_args()

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    torch.manual_seed(1)
    truth = torch.randn(20, 1)
    model = torch.nn.Linear(20, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    begin = load(args.snapshot, model, optimizer)
    net = DistributedDataParallel(model)
    print(f"rank {rank} of {world} begins with step {begin}", flush=True)
    for step in range(begin, args.steps):
        source = torch.Generator().manual_seed(step * 10_000 + rank)  # other records for each step and rank
        x = torch.randn(args.batch_size, 20, generator=source)
        loss = torch.nn.functional.mse_loss(net(x.to(device)), (x @ truth).to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} rank {rank} world {world} loss {loss.item():.6f}", flush=True)
        if rank == 0 and (step + 1) % args.every == 0:
            save(args.snapshot, model, optimizer, step + 1)
    if rank == 0:
        save(args.snapshot, model, optimizer, args.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
