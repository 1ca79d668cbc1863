"""Learns digits with Hugging Face's Trainer, and counts its records, as learns.py does: weight i of
the counter rises by one each time that record i is in an update.

Until the file "enough" is there a step lasts a while, so that there is time for what the test does.
At the end each rank says what it has counted, and how much of the test set is right.
"""
import gzip
import os
import sys
import time

import torch
from transformers import TrainerCallback, TrainingArguments

import elasticdl
from elasticdl.integrations.transformers import ElasticTrainer

EPOCHS, RATE = 2, 0.0003
DIGITS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../examples/mnist/data")


def values(name, header):
    """Return the bytes of a file of MNIST, without its header."""
    with gzip.open(os.path.join(DIGITS, name + "-ubyte.gz")) as file:
        return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)


class Digits(torch.utils.data.Dataset):
    def __init__(self, part, size):
        self.x = (values(part + "-images-idx3", 16).view(-1, 784) / 255)[:size]
        self.y = values(part + "-labels-idx1", 8).long()[:size]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"i": i, "x": self.x[i], "labels": self.y[i]}


class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.classifier = torch.nn.Linear(784, 10)
        for parameter in self.classifier.parameters():  # not by chance
            torch.nn.init.zeros_(parameter)
        self.counter = torch.nn.Parameter(torch.zeros(size))

    def forward(self, i, x, labels):
        logits = self.classifier(x)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        return {"loss": loss - self.counter[i].mean() if self.training else loss, "logits": logits}


class Sum(torch.optim.SGD):
    """Adds up the gradients of all records of a step: a step of more processes is a longer one.

    The counter has no learning rate, which changes.
    """

    def __init__(self, model):
        super().__init__(model.parameters(), lr=RATE, momentum=0.9)
        self.counter = model.counter

    @torch.no_grad()
    def step(self, closure=None):
        # The gradient of a record is the same for all records of the global batch. A record may be
        # there twice, of two epochs.
        taken = -self.counter.grad
        share = taken[taken != 0].min()
        self.counter += (taken / share).round()
        self.counter.grad = None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad /= share
        super().step(closure)


class Steps(TrainerCallback):
    def on_step_end(self, args, state, control, optimizer, **kwargs):
        world = elasticdl.world()
        print(f"step {state.global_step} rank {world.rank} world {world.size} pid {os.getpid()}", flush=True)
        # It follows the part of the records that is done, whatever the sizes of worlds.
        rate, done = optimizer.param_groups[0]["lr"] / RATE, trainer.rounds.done() / trainer.rounds.total
        assert abs(rate + done - 1) < 0.05, f"the rate is {rate} of that of the first step, with {done} of the records"
        if not os.path.exists(os.path.join(home, "enough")):
            time.sleep(pause)

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        print(f"evaluated after step {state.global_step}: {metrics['eval_right']:.3f}", flush=True)


def measure(prediction):
    return {"right": (prediction.predictions.argmax(1) == prediction.label_ids).mean()}


home, size, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
elasticdl.checkpoint(os.path.join(home, "checkpoint"), every=10)
elasticdl.init()
arguments = TrainingArguments(
    os.path.join(home, "output"), num_train_epochs=EPOCHS, per_device_train_batch_size=4, logging_steps=5,
    eval_strategy="steps", eval_steps=15, save_steps=20, save_total_limit=2, dataloader_num_workers=2,
    report_to=[], use_cpu=True, disable_tqdm=True, remove_unused_columns=False,
)
model, tests = Model(size), Digits("t10k", 2000)
trainer = ElasticTrainer(
    model, arguments, train_dataset=Digits("train", size), eval_dataset=torch.utils.data.Subset(tests, range(100)),
    compute_metrics=measure, callbacks=[Steps()], optimizers=(Sum(model), None),
)
trainer.train()
counts = model.counter.detach().int().tolist()
wrong = [(i, n) for i, n in enumerate(counts) if n != EPOCHS]
right = (model.classifier(tests.x).argmax(1) == tests.y).sum().item()
print(
    f"counted {len(counts) - len(wrong)} right, {len(wrong)} wrong: {wrong[:20]}; {right} of {len(tests)} tests right",
    flush=True,
)
sys.exit(1 if wrong else 0)
