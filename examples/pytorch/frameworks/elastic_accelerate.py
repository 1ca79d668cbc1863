"""Train a classifier with Hugging Face's Accelerate, which keeps its processes and its state."""
import sys

import torch
from torch.utils.data import TensorDataset

import elasticdl
from elasticdl.integrations.accelerate import Accelerator

if __name__ == "__main__":
    elasticdl.checkpoint(sys.argv[1] + "/elasticdl.pt", every=100)
    elasticdl.init()
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), gradient_accumulation_steps=2)
    torch.manual_seed(1)
    x = torch.randn(4000, 8)
    data = TensorDataset(x, (x[:, 0] > x[:, 1]).long())
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    state = elasticdl.State(model=model, optimizer=optimizer, step=0)  # not what prepare returns
    net, optimizer = accelerator.prepare(model, optimizer)

    @elasticdl.run
    def train(state):
        for x, y in accelerator.records(data, 8, epochs=2):
            with accelerator.accumulate(net):
                loss = torch.nn.functional.cross_entropy(net(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                state.step += 1
                elasticdl.step(loss)  # directly after the update

    train(state)
    right = (model(x.to(accelerator.device)).argmax(1).cpu() == data.tensors[1]).float().mean()
    accelerator.print(f"accuracy {right:.3f} after {state.step} steps")
