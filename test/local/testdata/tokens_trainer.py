"""Trains with Hugging Face's Trainer on sequences of different lengths, and compares each update
with that of one process on the batch of all ranks: the loss is the mean over its tokens."""
import copy
import sys

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback, TrainingArguments

import elasticdl
from elasticdl.integrations.transformers import ElasticTrainer

RECORDS, LENGTH, RATE = 45, 8, 0.5


class Lengths(torch.utils.data.Dataset):
    def __len__(self):
        return RECORDS

    def __getitem__(self, i):
        ids = torch.tensor([(i * k + k) % 20 for k in range(LENGTH)])
        labels = ids.clone()
        labels[2 + i % (LENGTH - 2):] = -100
        return {"input_ids": ids, "labels": labels}


class Watched(ElasticTrainer):
    taken = []

    def training_step(self, model, inputs, num_items_in_batch=None):
        # a batch without records of this rank has no labels
        self.taken.append({k: inputs[k].tolist() for k in inputs} if (inputs["labels"] != -100).any() else None)
        return super().training_step(model, inputs, num_items_in_batch)


class Compare(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        """Compute the gradients of the batch of all ranks before the update."""
        batches = [None] * args.world_size
        dist.all_gather_object(batches, trainer.taken)
        trainer.taken = []
        records = [b for rank in batches for b in rank if b is not None]
        ids, labels = ([row for b in records for row in b[name]] for name in ("input_ids", "labels"))
        labels = torch.tensor(labels)
        items = (labels[:, 1 if trainer._loss_shifts_labels else 0:] != -100).sum()
        reference = copy.deepcopy(model)
        reference.zero_grad()
        reference(input_ids=torch.tensor(ids), labels=labels, num_items_in_batch=items).loss.backward()
        for (name, p), q in zip(model.named_parameters(), reference.parameters()):
            assert torch.allclose(p.grad, q.grad, atol=1e-6), (name, len(ids), (p.grad - q.grad).abs().max())
        sizes.append(len(ids))


sizes = []
elasticdl.init()
torch.manual_seed(1)
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=20, n_positions=LENGTH, n_embd=8, n_layer=1, n_head=1, resid_pdrop=0, embd_pdrop=0,
               attn_pdrop=0)
)
arguments = TrainingArguments(
    sys.argv[1], num_train_epochs=2, per_device_train_batch_size=4, gradient_accumulation_steps=2, max_grad_norm=0,
    learning_rate=RATE, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True,
)
optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
trainer = Watched(
    model, arguments, train_dataset=Lengths(), callbacks=[Compare()], optimizers=(optimizer, None)
)
trainer.train()
assert sum(sizes) == 2 * RECORDS, sizes
assert optimizer.param_groups[0]["lr"] == 0, optimizer.param_groups[0]["lr"]
print(f"compared {len(sizes)} updates", flush=True)
