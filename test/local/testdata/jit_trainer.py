"""Trains with Hugging Face's Trainer, which writes checkpoints of its own before a planned stop only.

Until the file "enough" is there a step lasts a while.
"""
import glob
import os
import sys
import time

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

home, size, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return size

    def __getitem__(self, i):
        return {"x": torch.tensor([i / size]), "labels": torch.tensor([i / size])}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)

    def forward(self, x, labels):
        return {"loss": (self.line(x) - labels).square().mean()}


class Steps(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        print(
            f"step {state.global_step} rank {args.process_index} world {args.world_size} pid {os.getpid()}", flush=True
        )
        if not os.path.exists(os.path.join(home, "enough")):
            time.sleep(pause)


output = os.path.join(home, "output")
states = glob.glob(os.path.join(output, "checkpoint-*", "trainer_state.json"))
newest = os.path.dirname(max(states, key=os.path.getmtime)) if states else None
arguments = TrainingArguments(
    output, num_train_epochs=2, per_device_train_batch_size=4, save_strategy="no", report_to=[], use_cpu=True,
    disable_tqdm=True, enable_jit_checkpoint=True,
)
trainer = Trainer(Model(), arguments, train_dataset=Numbers(), callbacks=[Steps()])
trainer.train(resume_from_checkpoint=newest)
state = trainer.state
print(f"rank {arguments.process_index} ends after step {state.global_step} of {state.max_steps}", flush=True)
