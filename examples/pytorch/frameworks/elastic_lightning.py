"""Train a classifier with Lightning, which keeps its processes and its state."""
import sys

import torch
from lightning.pytorch import LightningModule, Trainer
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import elasticdl
from elasticdl.integrations.lightning import ElasticStrategy, fit


class Classifier(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return cross_entropy(self.net(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("accuracy", (self.net(x).argmax(1) == y).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


if __name__ == "__main__":
    elasticdl.checkpoint(sys.argv[1] + "/elasticdl.pt", every=100)
    elasticdl.init()
    torch.manual_seed(1)
    x = torch.randn(4000, 8)
    data = TensorDataset(x, (x[:, 0] > x[:, 1]).long())
    trainer = Trainer(strategy=ElasticStrategy(), max_epochs=2, default_root_dir=sys.argv[1])
    fit(trainer, Classifier(), data, batch_size=8, val_dataloaders=DataLoader(data, 64))
    trainer.print(f"accuracy {trainer.callback_metrics['accuracy']:.3f}")
