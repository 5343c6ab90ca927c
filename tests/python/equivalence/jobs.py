"""The jobs of equivalence_test.py: small, deterministic, and trained by DeAR or by plain PyTorch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

import dear

STEPS = 5
OVERFLOW = 1  # the step in which a scaled loss is infinite
MAX_NORM = 0.1
SAMPLES = 3  # of a rank and step

# Inputs, hidden values and outputs. The first are no multiple of a vector's length, so that each tensor ends in elements
# that the kernels of PyTorch treat by themselves; the others are.
ODD_SIZES = (13, 17, 5)
WHOLE_VECTORS = (16, 32, 16)

Groups = list[dict[str, Any]]

OPTIMIZERS: dict[str, Callable[[Groups], Optimizer]] = {
    "SGD": lambda groups: torch.optim.SGD(groups, lr=0.05, momentum=0.9),
    "Adam": lambda groups: torch.optim.Adam(groups, lr=4e-3),
    "AdamW foreach": lambda groups: torch.optim.AdamW(groups, lr=4e-3, foreach=True),
    "AdamW fused": lambda groups: torch.optim.AdamW(groups, lr=4e-3, fused=True),
    "AdamW for-loop": lambda groups: torch.optim.AdamW(groups, lr=4e-3, foreach=False),
    "RMSprop": lambda groups: torch.optim.RMSprop(groups, lr=1e-3, momentum=0.5, centered=True),
    "Adagrad": lambda groups: torch.optim.Adagrad(groups, lr=1e-2),
}


@dataclasses.dataclass(frozen=True)
class Job:
    optimizer: str
    policy: str = "dear"
    fusion: str = "layer"
    dtype: torch.dtype = torch.float32
    sizes: tuple[int, int, int] = ODD_SIZES
    scaled: bool = False  # a scaled loss, which overflows once on one rank, and gradients that are clipped

    @property
    def exact(self) -> bool:
        """Whether the parameters are those of plain PyTorch bit for bit."""
        return self.dtype == torch.float32

    def __str__(self) -> str:
        return f"{self.optimizer}, {self.policy}, {self.fusion}, {self.dtype}, {self.sizes}{', scaled' if self.scaled else ''}"


class Net(nn.Module):
    def __init__(self, job: Job, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        inputs, hidden, outputs = job.sizes
        self.first = nn.Linear(inputs, hidden, dtype=job.dtype)
        self.norm = nn.LayerNorm(hidden, dtype=job.dtype)
        self.last = nn.Linear(hidden, outputs, bias=False, dtype=job.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))))


def _optimizer_of(job: Job, model: Net) -> Optimizer:
    """Two parameter groups: matrices, and what is half as fast and decays not."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    rest = [parameter for parameter in model.parameters() if parameter.dim() == 1]
    optimizer = OPTIMIZERS[job.optimizer]([{"params": matrices, "weight_decay": 1e-2}, {"params": rest}])
    optimizer.param_groups[1]["lr"] /= 2
    return optimizer


def _batch(job: Job, step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    inputs, _, outputs = job.sizes
    return (
        torch.randn(SAMPLES, inputs, dtype=job.dtype, generator=generator),
        torch.randn(SAMPLES, outputs, dtype=job.dtype, generator=generator),
    )


def _loss(model: nn.Module, samples: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(model(samples), targets)


def _scaler() -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=2.0**10)


def _step(
    job: Job,
    loss: torch.Tensor,
    overflows: bool,
    optimizer: Optimizer,
    scaler: torch.amp.GradScaler,
    clip: Callable[[], torch.Tensor],
) -> None:
    if not job.scaled:
        loss.backward()
        optimizer.step()
        return
    scaler.scale(loss * (math.inf if overflows else 1)).backward()
    scaler.unscale_(optimizer)
    clip()
    scaler.step(optimizer)
    scaler.update()


def train_plainly(job: Job, ranks: int) -> list[torch.Tensor]:
    """The parameters after plain PyTorch has trained in one process. The gradients of the ranks' batches are added in
    the order of ranks, as DeAR adds them, and divided by the number of ranks."""
    model = Net(job, seed=0)
    optimizer = _optimizer_of(job, model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    for step in range(STEPS):
        sums = [torch.zeros_like(parameter) for parameter in model.parameters()]
        for rank in range(ranks):
            optimizer.zero_grad()
            _loss(model, *_batch(job, step, rank)).backward()
            for total, parameter in zip(sums, model.parameters()):
                total += parameter.grad
        for total, parameter in zip(sums, model.parameters()):
            parameter.grad = total / ranks
        optimizer.step()
        scheduler.step()
    return [parameter.detach() for parameter in model.parameters()]


def train_on_the_union(job: Job, ranks: int) -> list[torch.Tensor]:
    """The parameters after plain PyTorch has trained in one process, each step on the ranks' batches as one."""
    model = Net(job, seed=0)
    optimizer = _optimizer_of(job, model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    scaler = _scaler()
    for step in range(STEPS):
        batches = [_batch(job, step, rank) for rank in range(ranks)]
        optimizer.zero_grad()
        loss = _loss(model, *(torch.cat(parts) for parts in zip(*batches)))
        _step(job, loss, step == OVERFLOW, optimizer, scaler, lambda: clip_grad_norm_(model.parameters(), MAX_NORM))
        scheduler.step()
    return [parameter.detach() for parameter in model.parameters()]


def train_with_dear(job: Job, group: dear.Group) -> list[torch.Tensor]:
    """The parameters after DeAR has trained on `group`. Every rank makes other ones, so that it begins with those of
    rank 0 by what distribute() does."""
    model = Net(job, seed=group.rank)
    parallel, optimizer = dear.distribute(
        model,
        _optimizer_of(job, model),
        policy=job.policy,
        fusion=job.fusion,
        process_group=group,
        profile_steps=1,
        timeout=60,
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    scaler = _scaler()
    for step in range(STEPS):
        optimizer.zero_grad()
        overflows = step == OVERFLOW and group.rank == group.size - 1
        loss = _loss(parallel, *_batch(job, step, group.rank))
        _step(job, loss, overflows, optimizer, scaler, lambda: optimizer.clip_grad_norm_(MAX_NORM))
        scheduler.step()
    parallel.synchronize()
    parameters = [parameter.detach().clone() for parameter in model.parameters()]
    parallel.close()
    return parameters
