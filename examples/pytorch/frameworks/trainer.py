"""Train a small language model with Hugging Face's Trainer.

Nothing in it knows of ElasticDL: after a loss it continues from the newest checkpoint.
"""
import glob
import os
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

LENGTH = 16


class Sums(torch.utils.data.Dataset):
    """Sequences in which each number is the sum of the two before it, modulo 50."""

    def __len__(self):
        return 2000

    def __getitem__(self, i):
        row = [i % 50, i // 50 % 50]
        while len(row) < LENGTH:
            row.append((row[-1] + row[-2]) % 50)
        return {"input_ids": torch.tensor(row), "labels": torch.tensor(row)}


def newest(directory):
    """Return the newest complete checkpoint: trainer_state.json is written last."""
    states = glob.glob(os.path.join(directory, "checkpoint-*", "trainer_state.json"))
    return os.path.dirname(max(states, key=os.path.getmtime)) if states else None


if __name__ == "__main__":
    output = sys.argv[1]
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2))
    arguments = TrainingArguments(output, num_train_epochs=2, per_device_train_batch_size=8, learning_rate=1e-3,
                                  save_steps=20, save_total_limit=3, logging_steps=10, report_to=[],
                                  use_cpu=not torch.cuda.is_available())
    Trainer(model, arguments, train_dataset=Sums()).train(resume_from_checkpoint=newest(output))
