"""A small training that checks run twice on the same batches: by dear.distribute(), and by plain PyTorch with an all-reduce of all
gradients before each step. What they end with is compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from setting import Figures, Setting
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import dear

STEPS = 6
ALLOWED = 1e-5  # relative: on a GPU, whose kernels may depend on where a tensor lies


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Linear(8, 40)
        self.narrow = nn.Linear(40, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.narrow(self.widen(x).tanh())


class Net(nn.Module):
    """Two blocks of two layers, and a head; with `checkpointed`, activations of the blocks are computed anew."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 3)
        self.checkpointed: bool | None = None  # use_reentrant, or None for no checkpoint

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x) if self.checkpointed is None else checkpoint(block, x, use_reentrant=self.checkpointed)
        return self.head(x)


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adamw(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=0.01)


def fused_sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.1, fused=True)


def fused_adamw(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=0.01, fused=True)


class Job:
    """A model and its optimiser on a device: trained by DeAR, or by plain PyTorch."""

    def __init__(
        self,
        device: str,
        optimizer_of: Any,
        plain: bool = False,
        host_waits: Callable[[], int] = lambda: 0,
        prepare: Callable[[Net], object] = lambda net: None,  # before dear.distribute()
        **options: Any,
    ) -> None:
        torch.manual_seed(1)
        self.plain = plain
        self.device = device
        self.net: Any = Net().to(device)
        prepare(self.net)
        self.model: Any = self.net
        self.optimizer: Any = optimizer_of(self.model.parameters())
        self.scaler = torch.amp.GradScaler(device, init_scale=64.0, growth_interval=2)
        self.host_waits = host_waits
        self.waits = 0
        generator = torch.Generator().manual_seed(dist.get_rank())
        self.batches = [torch.randn(4, 8, generator=generator).to(device).requires_grad_() for _ in range(STEPS)]
        self.infinity = torch.tensor(float("inf")).to(device)
        if not plain:
            self.model, self.optimizer = dear.distribute(self.net, self.optimizer, **{"fusion": "2KiB", **options})

    def loss(self, step: int) -> Tensor:
        return self.model(self.batches[step]).float().square().mean()

    def reduce(self) -> None:
        """Plain PyTorch's part of a step that DeAR does by itself."""
        if self.plain:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    dist.all_reduce(parameter.grad)
                    parameter.grad.div_(dist.get_world_size())

    def step(self) -> None:
        self.reduce()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def end(self) -> list[Tensor]:
        if not self.plain:
            self.model.close()
        return [parameter.detach().cpu().clone() for parameter in self.model.parameters()]


Program = Callable[[Job], None]


def each_step(take: Callable[[Job, int], None]) -> Program:
    """A program that takes STEPS steps, and counts the waits of the host in all but the first two."""

    def program(job: Job) -> None:
        before = 0
        for step in range(STEPS):
            if step == 2:
                before = job.host_waits()
            take(job, step)
        job.waits = job.host_waits() - before

    return program


def plain_step(job: Job, step: int) -> None:
    job.loss(step).backward()
    job.step()


class Comparisons:
    """Runs programs by DeAR and by plain PyTorch; AssertionError where they differ. On the stub device that is any bit, and
    any wait of the host that is not allowed for; on a GPU a difference that rounding does not explain."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._apart = 0.0
        self._runs = 0

    def run(
        self, program: Program, optimizer_of: Any = sgd, device: str = "", **options: Any
    ) -> tuple[list[Tensor], int]:
        """What the parameters are at the end, and how often the host waited. `options`: of Job."""
        counted = self._setting.device.host_waits
        job = Job(device or self._setting.device.name, optimizer_of, host_waits=lambda: counted() or 0, **options)
        program(job)
        return job.end(), job.waits

    def as_plain(
        self,
        program: Program,
        optimizer_of: Any = sgd,
        device: str = "",
        waits: int | None = 0,
        prepare: Callable[[Net], object] = lambda net: None,
        **options: Any,
    ) -> None:
        """DeAR on the device against plain PyTorch, there or on `device`. `waits`: of the host, in DeAR's; None for any."""
        found, waited = self.run(program, optimizer_of, prepare=prepare, **options)
        expected, _ = self.run(program, optimizer_of, device=device, plain=True, prepare=prepare)
        self.same(found, expected, options)
        counted = self._setting.device.host_waits() is not None
        if waits is not None and counted:
            assert waited == waits, (
                f"the host waited {waited} times in {STEPS - 2} steps, {waits} are known ({options})"
            )

    def same(self, found: list[Tensor], expected: list[Tensor], what: Any = "") -> None:
        self._runs += 1
        assert len(found) == len(expected), f"{len(found)} tensors against {len(expected)}"
        for mine, theirs in zip(found, expected):
            if torch.equal(mine, theirs):
                continue
            apart = float((mine - theirs).abs().max() / theirs.abs().max())
            self._apart = max(self._apart, apart)
            exact = self._setting.device.name == "stub"
            assert not exact, f"parameters differ from plain PyTorch's by {apart:.1e}, and no bit should ({what})"
            assert apart <= ALLOWED, f"parameters are apart from plain PyTorch's by {apart:.1e} ({what})"

    def figures(self) -> Figures:
        found = "the same bits" if self._apart == 0 else f"apart by {self._apart:.0e} at most"
        return {"runs compared with plain PyTorch": self._runs, "parameters": found}
