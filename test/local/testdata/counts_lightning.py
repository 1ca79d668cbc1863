"""Trains the model of counting.py with Lightning, and validates it meanwhile."""
import os

import torch
from counting import EPOCHS, Counter, Model, Numbers, home, report, stepped
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.cli import SaveConfigCallback
from torch.utils.data import DataLoader, Subset

import elasticdl
from elasticdl.integrations.lightning import ElasticStrategy, fit


class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Model()

    def training_step(self, batch, batch_idx):
        return self.model(**batch)["loss"]

    def validation_step(self, batch, batch_idx):
        loss = self.model(**batch)["loss"]
        assert -EPOCHS <= loss <= 0, loss
        self.log("val_loss", loss, sync_dist=True)

    def configure_optimizers(self):
        optimizer = Counter(self.parameters())
        # by epoch: its last step is that of the last epoch
        return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)]


class Steps(Callback):
    validations = 0

    def on_train_batch_end(self, trainer, *args):
        if args[-1] % 2:
            stepped(trainer.global_step)

    def on_validation_epoch_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            print(f"validated after epoch {trainer.current_epoch} step {trainer.global_step}", flush=True)


class Once(SaveConfigCallback):
    """LightningCLI's callback, without the file: it broadcasts in its first setup."""

    def __init__(self):
        self.already_saved = False

    def setup(self, trainer, pl_module, stage):
        if not self.already_saved:
            self.already_saved = trainer.strategy.broadcast(True)


elasticdl.checkpoint(os.path.join(home, "checkpoint.pt"), every=10)
elasticdl.init()
module = Module()
trainer = Trainer(
    strategy=ElasticStrategy(), max_epochs=EPOCHS, accelerator="cpu", devices=1, accumulate_grad_batches=2,
    gradient_clip_val=1.0, default_root_dir=home, logger=False, enable_progress_bar=False, callbacks=[Steps(), Once()],
)
fit(trainer, module, Numbers(), 4, val_dataloaders=DataLoader(Subset(Numbers(), range(64)), 8))
assert trainer.lr_scheduler_configs[0].scheduler.last_epoch == EPOCHS, trainer.lr_scheduler_configs
report(module.model)
