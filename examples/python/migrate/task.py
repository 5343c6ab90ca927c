"""What the programs of this folder train: a small classifier on samples that are made by a seed."""

import os
import sys
from collections.abc import Iterator

import torch
from torch import Tensor, nn

STEPS = 12
BATCH = 16  # samples of one rank in a step


def make_model() -> nn.Sequential:
    """The same parameters on every rank."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))


def batches(rank: int, world_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The samples of a rank: (BATCH, 32) fp32, and (BATCH,) classes from 0 to 7."""
    generator = torch.Generator().manual_seed(2)
    directions = torch.randn(32, 8, generator=generator)
    for _ in range(STEPS):
        samples = torch.randn(world_size * BATCH, 32, generator=generator)
        mine = samples[rank::world_size]
        yield mine, (mine @ directions).argmax(1)


def report(rank: int, step: int, loss: Tensor) -> None:
    """Prints one line, by one write, which no other rank cuts."""
    program = os.path.basename(sys.argv[0])
    print(f"{program} rank {rank} step {step} loss {loss.item():.8f}\n", end="", flush=True)
