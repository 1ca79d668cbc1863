"""Train a small language model with Hugging Face's Trainer, which keeps its processes and its state."""
import sys

import torch
from datasets import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

import elasticdl
from elasticdl.integrations.transformers import ElasticTrainer

LENGTH = 16


def rows():
    """Yield sequences in which each number is the sum of the two before it, modulo 50."""
    for i in range(2000):
        row = [i % 50, i // 50]
        while len(row) < LENGTH:
            row.append((row[-1] + row[-2]) % 50)
        yield row


if __name__ == "__main__":
    output = sys.argv[1]
    elasticdl.checkpoint(output + "/elasticdl.pt", every=100)
    elasticdl.init()
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2))
    arguments = TrainingArguments(output, num_train_epochs=2, per_device_train_batch_size=8, learning_rate=1e-3,
                                  save_strategy="no", logging_steps=10, report_to=[],
                                  use_cpu=not torch.cuda.is_available())
    data = Dataset.from_dict({"input_ids": list(rows()), "labels": list(rows())})
    ElasticTrainer(model, arguments, train_dataset=data).train()
