# SPDX-License-Identifier: MIT
"""A program that trains a small GPT with evaluation and checkpoints, and reports itself as JSON.

    python train_gpt.py FOLDER --seconds 20          # as many steps as fit
    python train_gpt.py FOLDER --steps 300           # that many in all, from the last checkpoint

Equal steps must give equal losses, whether a run was cut in two or not.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 96, 48, 64, 4, 2, 8
EVALUATE_EVERY, SAVE_EVERY, SAMPLE_EVERY = 40, 60, 10


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(2)])
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, time, width] to the same shape."""
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp(self.norms[1](x))


class Gpt(nn.Module):
    """Predicts the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens [batch, time] to logits [batch, time, vocabulary]."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places(places))))


class Texts(torch.utils.data.Dataset):
    """Sequences in which each token follows from the two before it, some at random."""

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> Tensor:
        generator = torch.Generator().manual_seed(index)
        noise = torch.randint(0, VOCABULARY, (CONTEXT + 1,), generator=generator)
        keep = torch.rand(CONTEXT + 1, generator=generator) < 0.1
        row = noise[:2].tolist()
        for i in range(2, CONTEXT + 1):
            follows = (row[-1] * 3 + row[-2] + 1) % VOCABULARY
            row.append(int(noise[i]) if keep[i] else follows)
        return torch.tensor(row)


class Steps(torch.utils.data.Sampler):
    """The batches from a step on."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __iter__(self) -> Iterator[list[int]]:
        step = self.first
        while True:
            yield [step * BATCH + i for i in range(BATCH)]
            step += 1


def loss_of(model: Gpt, batch: Tensor) -> Tensor:
    """Return the mean cross entropy of the tokens after the first."""
    logits = model(batch[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def resident_bytes() -> int:
    """Return the memory of this process that is in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Training:
    """A model with its optimizer, its step and the random state that belongs to it."""

    def __init__(self, device: str, folder: Path) -> None:
        torch.manual_seed(0)
        self.device, self.path = device, folder / "checkpoint.pt"
        self.model = Gpt().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 1000)
        self.losses: list[str] = []
        self.evaluations: list[str] = []
        if self.path.exists():
            self.load()

    @property
    def step(self) -> int:
        """How many steps were made."""
        return len(self.losses)

    def save(self) -> None:
        """Write a checkpoint beside the old one, then put it in its place."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "random": [torch.get_rng_state(), torch.hologram.get_rng_state(self.device)],
            "losses": self.losses,
            "evaluations": self.evaluations,
        }
        fresh = self.path.with_suffix(".new")
        torch.save(state, fresh)
        fresh.replace(self.path)

    def load(self) -> None:
        """Go on where the checkpoint was written."""
        state = torch.load(self.path, map_location=self.device)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["random"][0].cpu())
        torch.hologram.set_rng_state(state["random"][1].cpu(), self.device)
        self.losses, self.evaluations = state["losses"], state["evaluations"]

    def learn(self, batch: Tensor) -> None:
        """Make one step."""
        loss = loss_of(self.model, batch.to(self.device, non_blocking=True))
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.losses.append(loss.item().hex())

    def evaluate(self) -> None:
        """Note the loss of data that training never sees."""
        self.model.eval()
        data = Texts()
        with torch.no_grad():
            batch = torch.stack([data[(1 << 29) + i] for i in range(BATCH)])
            self.evaluations.append(loss_of(self.model, batch.to(self.device)).item().hex())
        self.model.train()


def run(folder: Path, device: str, steps: int | None, seconds: float, workers: int) -> dict:
    """Train, and return what there is to know of it."""
    training = Training(device, folder)
    first = training.step
    loader = torch.utils.data.DataLoader(
        Texts(), batch_sampler=Steps(first), num_workers=workers, pin_memory=True
    )
    resident, held = [], []
    begin = time.monotonic()
    if steps is None or steps > first:
        for batch in loader:
            training.learn(batch)
            step = training.step
            if step % EVALUATE_EVERY == 0:
                training.evaluate()
            if step % SAVE_EVERY == 0:
                training.save()
            if step % SAMPLE_EVERY == 0:
                gc.collect()
                resident.append(resident_bytes())
                held.append(torch.hologram.memory_allocated())
            if (step >= steps) if steps is not None else (time.monotonic() - begin >= seconds):
                break
    training.save()
    return {
        "first": first,
        "steps": training.step,
        "seconds": time.monotonic() - begin,
        "losses": training.losses,
        "evaluations": training.evaluations,
        "resident": resident,
        "held": held,
        "fallbacks": __import__("hologram_torch").fallback_counts(),
    }


def main() -> None:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="hologram")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--workers", type=int, default=2)
    a = parser.parse_args()
    print(json.dumps(run(a.folder, a.device, a.steps, a.seconds, a.workers)))


if __name__ == "__main__":
    main()
