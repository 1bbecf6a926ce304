# SPDX-License-Identifier: MIT
"""A character-level GPT, in one file with settings on top, trained on CUDA with autocast."""

from __future__ import annotations

import math
import sys
import time
from contextlib import nullcontext

import torch
import torch.nn as nn
from torch import Tensor
from torch.nn import functional as F

batch_size, block_size, width, heads, layers = 16, 32, 64, 4, 2
steps, warmup, learning_rate = 100, 5, 1e-2
accumulation = 2
device = "cuda"
dtype = "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float16"
compiles = "--compile" in sys.argv

torch.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
device_type = "cuda" if "cuda" in device else "cpu"
ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
context = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type, dtype=ptdtype)

text = "the quick brown fox jumps over the lazy dog; " * 40
letters = sorted(set(text))
data = torch.tensor([letters.index(c) for c in text])


class Block(nn.Module):
    """Attention and two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.size()
        parts = self.attend(self.ln1(x)).split(width, dim=2)
        q, k, v = (p.view(b, t, heads, c // heads).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.narrow(F.gelu(self.wide(self.ln2(x))))


class GPT(nn.Module):
    """The model; its last layer is the table of letters."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(letters), width)
        self.places = nn.Embedding(block_size, width)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(letters), bias=False)
        self.letters.weight = self.head.weight

    def forward(self, index: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        at = torch.arange(0, index.size(1), dtype=torch.long, device=index.device)
        x = self.letters(index) + self.places(at)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

    @torch.no_grad()
    def generate(self, index: Tensor, count: int) -> Tensor:
        for _ in range(count):
            logits, _ = self(index[:, -block_size:])
            likely = F.softmax(logits[:, -1].float() / 0.5, dim=-1)
            index = torch.cat((index, torch.multinomial(likely, num_samples=1)), dim=1)
        return index


def get_batch() -> tuple[Tensor, Tensor]:
    ix = torch.randint(len(data) - block_size - 1, (batch_size,))
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    if device_type == "cuda":
        return (
            x.pin_memory().to(device, non_blocking=True),
            y.pin_memory().to(device, non_blocking=True),
        )
    return x.to(device), y.to(device)


model = GPT()
model.to(device)
scaler = torch.cuda.amp.GradScaler(enabled=(dtype == "float16"))
optimizer = torch.optim.AdamW(
    model.parameters(), lr=learning_rate, betas=(0.9, 0.95), fused=device_type == "cuda"
)
run = torch.compile(model, backend="aot_eager") if compiles else model
started, first, last = time.time(), math.nan, math.nan
X, Y = get_batch()
for step in range(steps):
    decay = 0.5 * (1 + math.cos(math.pi * step / steps))
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * (min(1, (step + 1) / warmup) if step < warmup else decay)
    for _ in range(accumulation):
        with context:
            logits, loss = run(X, Y)
            loss = loss / accumulation
        X, Y = get_batch()
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    last = loss.item() * accumulation
    first = last if step == 0 else first
torch.cuda.synchronize()
model.eval()
with context:
    made = model.generate(torch.zeros((1, 1), dtype=torch.long, device=device), 40)[0].tolist()
print(f"{first:.2f} to {last:.2f}, {torch.cuda.max_memory_allocated() > 0}, {logits.dtype}")
print(repr("".join(letters[i] for i in made)))
print("learned" if last < 0.5 * first else "failed", f"on {logits.device}")
