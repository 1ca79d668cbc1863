"""Asks the integrations for what they refuse. Each error names the argument and what to do."""
import sys

import torch
import transformers
from lightning.pytorch import LightningModule, Trainer

import elasticdl
from elasticdl.integrations import accelerate, lightning
from elasticdl.integrations.transformers import ElasticTrainer


def refuses(text, call):
    try:
        call()
    except elasticdl.Error as e:
        assert text in str(e), (text, e)
        return
    raise AssertionError(f"accepted: {text}")


refuses("call elasticdl.init() first", accelerate.Accelerator)
refuses("call elasticdl.init() first", lightning.ElasticStrategy)
elasticdl.init()
model = torch.nn.Linear(1, 1)
data = torch.utils.data.TensorDataset(torch.zeros(4, 1))


def trainer(train_dataset=data, model=model, **arguments):
    arguments = transformers.TrainingArguments(sys.argv[1], report_to=[], use_cpu=True, **arguments)
    return ElasticTrainer(model, arguments, train_dataset=train_dataset)


for text, arguments in (
    ("group_by_length", dict(train_sampling_strategy="group_by_length")),
    ("dataloader_drop_last", dict(dataloader_drop_last=True)),
    ("split_batches", dict(accelerator_config={"split_batches": True})),
    ("auto_find_batch_size", dict(auto_find_batch_size=True)),
    ("enable_jit_checkpoint", dict(enable_jit_checkpoint=True)),
    ("num_train_epochs", dict(num_train_epochs=0.5)),
):
    refuses(text, lambda: trainer(**arguments))
refuses("resume_from_checkpoint", lambda: trainer().train(resume_from_checkpoint="checkpoint-10"))
refuses("__len__", lambda: trainer(iter([]), max_steps=1).train())
refuses("trial", lambda: trainer().train(trial={}))


def fit(automatic=True, **arguments):
    module = LightningModule()
    module.automatic_optimization = automatic
    options = {"strategy": lightning.ElasticStrategy(), "max_epochs": 1, **arguments}
    lightning.fit(Trainer(accelerator="cpu", devices=1, logger=False, **options), module, data, 2)


refuses("ElasticStrategy()", lambda: fit(strategy="auto"))
refuses("max_epochs", lambda: fit(max_epochs=-1))
refuses("automatic_optimization", lambda: fit(automatic=False))
refuses("limit_train_batches", lambda: fit(limit_train_batches=2))
refuses("reload_dataloaders_every_n_epochs", lambda: fit(reload_dataloaders_every_n_epochs=1))
print("all is refused")
