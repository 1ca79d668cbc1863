"""Train with the package `elasticdl`.

It keeps this process and its state when workers come and go. Every record is in the model once,
also when processes are lost. Under `elasticdl run` the package is there; nothing is installed.
"""
import argparse

import torch
import torch.nn.functional as F
from torch.utils.data import TensorDataset

import elasticdl


def drawn(records):
    """Return points of three classes, around three centres."""
    source = torch.Generator().manual_seed(1)
    labels = torch.randint(3, (records,), generator=source)
    centres = torch.tensor([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]])
    return TensorDataset(centres[labels] + 0.5 * torch.randn(records, 2, generator=source), labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=32, help="of each process")
    parser.add_argument("--checkpoint", help="file on a volume that all nodes have; none is kept if not given")
    args = parser.parse_args()

    if args.checkpoint:
        elasticdl.checkpoint(args.checkpoint, every=100)
    elasticdl.init()
    torch.manual_seed(1)
    data = drawn(args.records)
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    state = elasticdl.State(model=model, optimizer=optimizer, step=0)

    @elasticdl.run
    def train(state):
        world = elasticdl.world()
        print(f"rank {world.rank} of {world.size} continues after step {state.step}", flush=True)
        net = elasticdl.DistributedDataParallel(model)
        for x, y in elasticdl.records(data, args.batch_size, epochs=args.epochs):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            state.step += 1
            if state.step % 20 == 0:
                print(f"step {state.step} rank {world.rank} world {world.size} loss {loss.item():.4f}", flush=True)
            elasticdl.step(loss)

    train(state)
    with torch.no_grad():
        x, y = data.tensors
        right = (model(x).argmax(1) == y).float().mean().item()
    print(f"rank {elasticdl.world().rank} ends after step {state.step}: accuracy {right:.4f}", flush=True)


if __name__ == "__main__":
    main()
