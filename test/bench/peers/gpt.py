"""Train a small GPT on a synthetic text with DDP over gloo, as nanoGPT does on a CPU.

    gpt.py UNTIL DIRECTORY MEGABYTES

The model has 4 layers, 4 heads and 128 channels; a rank has 12 texts of 64 tokens. The script
writes steps as elastic.py does, and sleeps in none.
"""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import workload

LAYERS, HEADS, WIDTH, TOKENS, BATCH, WORDS = 4, 4, 128, 64, 12, 65


class Block(nn.Module):
    """Is one layer: causal attention, then a perceptron, each added to its input."""

    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.parts, self.join = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.think = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        batch, tokens, _ = x.shape
        q, k, v = self.parts(self.before(x)).view(batch, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.join(seen.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.think(self.between(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x):
        x = self.words(x) + self.places(torch.arange(x.shape[1]))
        return self.out(self.norm(self.blocks(x)))


torch.manual_seed(1)
dist.init_process_group("gloo")
size, world = dist.get_world_size(), torch.tensor([os.getpid() if dist.get_rank() == 0 else 0])
dist.all_reduce(world)
log = workload.Log(world.item(), pause=0)
model = nn.parallel.DistributedDataParallel(GPT())
update = torch.optim.AdamW(model.parameters(), lr=1e-3)
text = torch.randint(0, WORDS, (100_000,))
while not workload.over():
    at = torch.randint(0, len(text) - TOKENS - 1, (BATCH,)).tolist()
    x, y = (torch.stack([text[i + shift:i + shift + TOKENS] for i in at]) for shift in (0, 1))
    update.zero_grad(set_to_none=True)
    F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    update.step()
    log.step(size)
