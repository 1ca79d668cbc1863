"""Trains the model of counting.py with Hugging Face's Trainer, and evaluates it meanwhile."""
import os

from counting import EPOCHS, Counter, Model, Numbers, home, pause, report, size, stepped
from torch.utils.data import Subset
from transformers import TrainerCallback, TrainingArguments

import elasticdl
from elasticdl.integrations.transformers import ElasticTrainer


class Steps(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        stepped(state.global_step)

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        assert -EPOCHS <= metrics["eval_loss"] <= 0, metrics


elasticdl.checkpoint(os.path.join(home, "checkpoint.pt"), every=10)
elasticdl.init()
arguments = TrainingArguments(
    os.path.join(home, "output"), num_train_epochs=EPOCHS, per_device_train_batch_size=4,
    gradient_accumulation_steps=2, max_grad_norm=1.0, logging_steps=5, report_to=[], use_cpu=True,
    eval_strategy="steps", eval_steps=7, save_steps=25, save_total_limit=2, disable_tqdm=True,
    lr_scheduler_type="constant", remove_unused_columns=False,
)
model = Model()
ElasticTrainer(
    model, arguments, train_dataset=Numbers(), eval_dataset=Subset(Numbers(), range(64)), callbacks=[Steps()],
    optimizers=(Counter(model.parameters()), None),
).train()
report(model)
