"""Train a tiny language model with Hugging Face's Trainer, as its example run_clm.py does.

    clm.py UNTIL DIRECTORY MEGABYTES transformers

The script knows nothing of its launcher. It writes steps as elastic.py does, and continues from its
newest checkpoint after a restart.
"""
import glob
import os

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import workload

LENGTH, WORDS = 16, 50


class Sums(torch.utils.data.Dataset):
    """Sequences in which each number is the sum of the two before it, modulo WORDS."""

    def __len__(self):
        return 2000

    def __getitem__(self, i):
        row = [i % WORDS, i // WORDS % WORDS]
        while len(row) < LENGTH:
            row.append((row[-1] + row[-2]) % WORDS)
        return {"input_ids": torch.tensor(row), "labels": torch.tensor(row)}


class Steps(TrainerCallback):
    """Writes the steps of this process, and ends the training in time."""

    def on_train_begin(self, args, state, control, **kwargs):
        world = torch.tensor([os.getpid() if dist.get_rank() == 0 else 0])
        dist.all_reduce(world)
        self.log = workload.Log(world.item())

    def on_step_end(self, args, state, control, **kwargs):
        self.log.step(dist.get_world_size())
        control.should_training_stop = workload.over()


def newest(directory):
    """Return the newest complete checkpoint: trainer_state.json is written last."""
    states = glob.glob(os.path.join(directory, "checkpoint-*", "trainer_state.json"))
    return os.path.dirname(max(states, key=os.path.getmtime)) if states else None


torch.set_num_threads(1)
output = os.path.join(workload.DIRECTORY, "output")
model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2))
arguments = TrainingArguments(
    output, max_steps=1000000, per_device_train_batch_size=workload.BATCH, save_steps=50, save_total_limit=3,
    logging_steps=50, report_to=[], use_cpu=True, disable_tqdm=True)
Trainer(model, arguments, train_dataset=Sums(), callbacks=[Steps()]).train(resume_from_checkpoint=newest(output))
