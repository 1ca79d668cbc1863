"""Train a small convolutional network on digits, or on pictures that it draws itself.

A checkpoint is kept for each epoch, and when the process is asked to end (SIGTERM, as before a
preemption). The script continues with the epoch of the checkpoint from its beginning: records of an
epoch that was cut short are seen again.
"""
import argparse
import os
import signal
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Folder(Dataset):
    """Read DIR/DIGIT/*.png, as `elasticdl dataset mnist-png` writes them."""

    def __init__(self, root):
        self.files = [(os.path.join(root, label, name), int(label))
                      for label in sorted(os.listdir(root)) for name in sorted(os.listdir(os.path.join(root, label)))]
        if not self.files:
            sys.exit(f"--data: no {root}/DIGIT/*.png; make them with: elasticdl dataset mnist-png DIR")

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        from PIL import Image

        path, label = self.files[i]
        with Image.open(path) as image:
            pixels = torch.frombuffer(bytearray(image.convert("L").tobytes()), dtype=torch.uint8)
        return pixels.view(1, 28, 28).float() / 255, label


def drawn(records, seed):
    """Return pictures of ten classes: a bright bar at the place of the class, in noise."""
    source = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (records,), generator=source)
    images = torch.rand(records, 1, 28, 28, generator=source) * 0.3
    for i, label in enumerate(labels.tolist()):
        images[i, 0, :, 2 * label + 4:2 * label + 6] += 0.7
    return TensorDataset(images, labels)


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(16 * 6 * 6, 64), nn.ReLU(), nn.Linear(64, 10))


def save(path, model, optimizer, epoch):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    beside = f"{path}.{os.getpid()}"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, beside)
    os.replace(beside, path)


def accuracy(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x).argmax(1) == y).sum().item()
            total += len(y)
    model.train()
    return right / total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="directory with training/ and testing/; drawn pictures if not given")
    parser.add_argument("--records", type=int, default=2000, help="of drawn pictures")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=32, help="of each process")
    parser.add_argument("--workers", type=int, default=0, help="processes that load data")
    parser.add_argument("--checkpoint", default="mnist.pt", help="on a volume that all nodes have")
    args = parser.parse_args()

    leaving = []
    signal.signal(signal.SIGTERM, lambda *_: leaving.append(True))
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    if args.data:
        train, test = Folder(os.path.join(args.data, "training")), Folder(os.path.join(args.data, "testing"))
    else:
        train, test = drawn(args.records, 1), drawn(500, 2)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    begin = 0
    if os.path.exists(args.checkpoint):
        saved = torch.load(args.checkpoint, map_location="cpu")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        begin = saved["epoch"]
    net = DistributedDataParallel(model)
    print(f"rank {rank} of {world} begins with epoch {begin}", flush=True)
    sampler = DistributedSampler(train)
    loader = DataLoader(train, args.batch_size, sampler=sampler, num_workers=args.workers)
    for epoch in range(begin, args.epochs):
        sampler.set_epoch(epoch)
        for step, (x, y) in enumerate(loader):
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} rank {rank} world {world} loss {loss.item():.4f}", flush=True)
            # all ranks have the same model: the rank that leaves saves it
            if leaving:
                save(args.checkpoint, model, optimizer, epoch)
                print(f"rank {rank} leaves in epoch {epoch} after step {step}", flush=True)
                # the others wait in the next step: nothing is to be reported to them
                os._exit(128 + signal.SIGTERM)
        if rank == 0:
            save(args.checkpoint, model, optimizer, epoch + 1)
            print(f"epoch {epoch} accuracy {accuracy(model, DataLoader(test, 256)):.4f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
