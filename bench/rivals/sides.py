"""The rivals: how each makes a model and an optimiser parallel, and how its whole parameters are read."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from cases import Case, Sample
from torch import Tensor, distributed, nn

NOTHING: Callable[[], object] = lambda: None


@dataclass
class Side:
    """One rival in training. `settle` ends what is under way, before another side's turn."""

    case: Case
    model: nn.Module
    optimizer: torch.optim.Optimizer
    settle: Callable[[], object] = NOTHING
    close: Callable[[], object] = NOTHING
    note: Callable[[], str] = lambda: ""
    steps: int = 0
    losses: list[Tensor] = field(default_factory=list)  # on their device, which the host does not wait for

    def step(self, samples: list[Sample]) -> None:
        self.optimizer.zero_grad()
        loss = self.case.loss(self.model, samples[self.steps % len(samples)])
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        self.losses.append(loss.detach())

    def parameters(self) -> Tensor:
        """All parameters in one flat tensor of the CPU."""
        self.settle()
        whole = [one.full_tensor() if hasattr(one, "full_tensor") else one for one in self.model.parameters()]
        return torch.cat([one.detach().cpu().reshape(-1) for one in whole])


def plain(case: Case, fusion: str) -> Side:
    """PyTorch without communication, for a world of one rank."""
    model = case.make_model()
    return Side(case, model, case.make_optimizer(model.parameters(), **case.settings))


def ddp(case: Case, fusion: str) -> Side:
    """DistributedDataParallel over Gloo; gradients are views of its buckets, which spares a copy."""
    model = nn.parallel.DistributedDataParallel(
        case.make_model(), process_group=distributed.new_group(), gradient_as_bucket_view=True
    )
    return Side(case, model, case.make_optimizer(model.parameters(), **case.settings))


def zero(case: Case, fusion: str) -> Side:
    """DistributedDataParallel with ZeroRedundancyOptimizer."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    group = distributed.new_group()
    model = nn.parallel.DistributedDataParallel(case.make_model(), process_group=group, gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(),
        optimizer_class=case.make_optimizer,
        process_group=group,
        parameters_as_bucket_view=True,
        **case.settings,
    )
    return Side(case, model, optimizer)


def fsdp2(case: Case, fusion: str) -> Side:
    """fully_shard on each block; parameters stay whole until the backward pass, the quicker of its two ways."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(case.device, (distributed.get_world_size(),))
    model = case.make_model()
    for block in case.blocks(model):
        fully_shard(block, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    return Side(case, model, case.make_optimizer(model.parameters(), **case.settings))


def dear_side(case: Case, fusion: str) -> Side:
    """DeAR: over shared memory on one host, else over a process group of its own."""
    import dear

    model = case.make_model()
    optimizer = case.make_optimizer(model.parameters(), **case.settings)
    parallel, optimizer = dear.distribute(model, optimizer, fusion=fusion, process_group=distributed.new_group())

    def note() -> str:
        return f"backend {parallel.backend}, {parallel.statistics()}"

    return Side(case, parallel, optimizer, settle=parallel.synchronize, close=parallel.close, note=note)


# By the names of --sides: the name in tables, and how it is made.
SIDES: dict[str, tuple[str, Callable[[Case, str], Side]]] = {
    "plain": ("PyTorch alone", plain),
    "ddp": ("DDP", ddp),
    "fsdp2": ("FSDP2", fsdp2),
    "zero": ("ZeroRedundancyOptimizer", zero),
    "dear": ("DeAR", dear_side),
}

warnings.filterwarnings("ignore", category=FutureWarning)
warnings.filterwarnings("ignore", message=".*reshard_after_forward.*")
