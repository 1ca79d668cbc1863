"""Train a residual network on a directory of pictures.

The script has the shape of torchelastic's first example. The pictures are in a directory for each
class, at any depth below it, as torchvision's ImageFolder has them; PIL reads them. `elasticdl
dataset tiny-imagenet` and `elasticdl dataset images-synthetic` write such directories.
"""
import argparse
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

KINDS = (".jpg", ".jpeg", ".png")
ARCHS = {"resnet6": (1, 1), "resnet10": (1, 1, 1, 1), "resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}


class Pictures(Dataset):
    def __init__(self, root, size):
        self.size = size
        self.classes = sorted(d.name for d in os.scandir(root) if d.is_dir())
        self.files = [(os.path.join(at, name), label) for label, c in enumerate(self.classes)
                      for at, _, names in sorted(os.walk(os.path.join(root, c)))
                      for name in sorted(names) if name.lower().endswith(KINDS)]
        if not self.files:
            sys.exit(f"{root}: no CLASS/*.jpeg in it; elasticdl dataset images-synthetic DIR makes some, in DIR/train")

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        from PIL import Image

        path, label = self.files[i]
        with Image.open(path) as image:
            image = image.convert("RGB").resize((self.size, self.size))
            pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        return pixels.view(self.size, self.size, 3).permute(2, 0, 1).float() / 127.5 - 1, label


class Block(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.one, self.two = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.Conv2d(
            after, after, 3, 1, 1, bias=False
        )
        self.norm1, self.norm2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.past = (
            nn.Identity() if before == after and stride == 1 else nn.Conv2d(before, after, 1, stride, bias=False)
        )

    def forward(self, x):
        y = self.norm2(self.two(F.relu(self.norm1(self.one(x)))))
        return F.relu(y + self.past(x))


def resnet(blocks, classes, width=32):
    layers, channels = [nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()], width
    for depth, count in enumerate(blocks):
        for i in range(count):
            layers.append(Block(channels, width << depth, 2 if i == 0 and depth > 0 else 1))
            channels = width << depth
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input_path", required=True, help="directory of the training pictures")
    parser.add_argument("--val_path", help="directory of the validation pictures; nothing is validated if not given")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--arch", "--model_arch", default="resnet18", choices=sorted(ARCHS))
    parser.add_argument("--size", type=int, default=64, help="width and height of the pictures for the network")
    parser.add_argument("--batch_size", type=int, default=32, help="of each process")
    parser.add_argument("--num_data_workers", type=int, default=0)
    parser.add_argument("--lr", type=float, default=0.0125, help="for one process; it grows with the world")
    parser.add_argument("--checkpoint_file", default="imagenet.pt", help="on a volume that all nodes have")
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda" if cuda else "cpu")
    torch.manual_seed(1)
    train = Pictures(args.input_path, args.size)
    model = resnet(ARCHS[args.arch], len(train.classes)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    begin = 0
    if os.path.exists(args.checkpoint_file):
        saved = torch.load(args.checkpoint_file, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        begin = saved["epoch"]
    for group in optimizer.param_groups:
        group["lr"] = args.lr * world
    net = DistributedDataParallel(model)
    print(
        f"rank {rank} of {world} on {device} begins with epoch {begin}: {len(train)} pictures of {len(train.classes)} classes",
        flush=True,
    )
    sampler = DistributedSampler(train)
    loader = DataLoader(train, args.batch_size, sampler=sampler, num_workers=args.num_data_workers)
    for epoch in range(begin, args.epochs):
        sampler.set_epoch(epoch)
        for iteration, (x, y) in enumerate(loader):
            loss = F.cross_entropy(net(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(
                f"epoch: {epoch}, iteration: {iteration}, rank: {rank}, world: {world}, loss: {loss.item():.4f}",
                flush=True,
            )
        if rank == 0:
            beside = args.checkpoint_file + ".new"
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}, beside)
            os.replace(beside, args.checkpoint_file)
            if args.val_path:
                val = Pictures(args.val_path, args.size)
                model.eval()
                with torch.no_grad():
                    right = sum((model(x.to(device)).argmax(1).cpu() == y).sum().item() for x, y in DataLoader(val, 64))
                model.train()
                print(f"epoch: {epoch}, accuracy: {right / len(val):.4f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
