"""Buffers, and batch normalisation over the samples of all ranks."""

from __future__ import annotations

import copy
import pickle

import torch
from torch import nn

import dear

from .registry import RANK, WORLD, behaviour, refuses, same, sgd


def images(step: int, rank: int, count: int = 4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return 2 * torch.randn(count, 2, 6, 6, generator=generator) + 3


def norms(**how) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4, **how),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 5),
        nn.BatchNorm1d(5, **how),
    )


def loss_of(output: torch.Tensor) -> torch.Tensor:
    return output.float().sin().sum() / 20


def synchronised(make=norms, counts=lambda step, rank: 4, steps: int = 4, change=lambda model: model, **options):
    """Trained with SyncBatchNorm on the ranks, and plain PyTorch on the union of the batches."""
    converted = dear.SyncBatchNorm.convert_sync_batchnorm(change(make()))
    model, optimizer = dear.distribute(converted, sgd(converted), **{"fusion": "layer", **options})
    alone = change(make())
    plain = sgd(alone)
    kind = next(alone.parameters()).dtype
    for step in range(steps):
        (loss_of(model(images(step, RANK, counts(step, RANK)).to(kind))) * WORLD).backward()
        optimizer.step()
        plain.zero_grad()
        union = torch.cat([images(step, rank, counts(step, rank)) for rank in range(WORLD)])
        loss_of(alone(union.to(kind))).backward()
        plain.step()
    return model, alone


def same_buffers(model: nn.Module, reference: nn.Module, tolerance: float) -> None:
    for (name, mine), theirs in zip(model.named_buffers(), reference.buffers()):
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance, msg=lambda text: f"{name}: {text}")


@behaviour(
    "test_DistributedDataParallel_SyncBatchNorm, test_DistributedDataParallel_SyncBatchNorm_2D_Input",
    "SyncBatchNorm: parameters and statistics of one process over the union of the batches",
    "dear.SyncBatchNorm",
)
def sync_batch_norm() -> None:
    for policy in ("dear", "dear-eager", "wfbp"):
        model, alone = synchronised(policy=policy)
        same(model, alone, 1e-5)
        same_buffers(model, alone, 1e-5)
        assert model.state_dict().keys() == alone.state_dict().keys()
        model.eval(), alone.eval()
        torch.testing.assert_close(model(images(9, RANK)), alone(images(9, RANK)), rtol=1e-4, atol=1e-4)
        model.close()


@behaviour(
    "test_DistributedDataParallel_SyncBatchNorm_Diff_Input_Sizes_Running_Value, _Diff_Input_Sizes_gradient",
    "SyncBatchNorm: batches of different sizes, also none on a rank; one value for each channel in all is refused",
    "dear.SyncBatchNorm",
)
def sync_batch_norm_uneven() -> None:
    model, alone = synchronised(counts=lambda step, rank: 2 * rank + step % 2)
    same(model, alone, 1e-5)
    same_buffers(model, alone, 1e-5)
    layer = dear.SyncBatchNorm(3)
    refuses(dear.ConfigError, lambda: layer(torch.ones(1 if RANK == 0 else 0, 3)), f"rank {RANK}", "one value")


@behaviour(
    "test_DistributedDataParallel_SyncBatchNorm_No_Affine, _Single_Input_Per_Process",
    "SyncBatchNorm: affine=False, momentum=None, track_running_stats=False, channels_last, one sample a rank",
    "dear.SyncBatchNorm",
)
def sync_batch_norm_options() -> None:
    for how in ({"affine": False}, {"momentum": None}, {"track_running_stats": False}):
        model, alone = synchronised(lambda how=how: norms(**how), lambda step, rank: 1)
        same(model, alone, 1e-4)
        same_buffers(model, alone, 1e-4)
    model, alone = synchronised(change=lambda model: model.to(memory_format=torch.channels_last))
    same(model, alone, 1e-5)


@behaviour(
    "test_DistributedDataParallel_SyncBatchNorm_half",
    "SyncBatchNorm: models in bfloat16, and under autocast",
    "dear.SyncBatchNorm",
)
def sync_batch_norm_narrow() -> None:
    model, alone = synchronised(change=lambda model: model.bfloat16(), steps=1)
    same(model, alone, 0.05)
    layer = dear.SyncBatchNorm(4)
    generator = torch.Generator().manual_seed(1)
    union = torch.randn(3 * WORLD, 4, generator=generator) + 2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = layer(union[3 * RANK : 3 * RANK + 3].bfloat16())
    assert output.dtype == torch.bfloat16
    expected = nn.BatchNorm1d(4)(union.bfloat16().float())[3 * RANK : 3 * RANK + 3]
    torch.testing.assert_close(output.float(), expected, rtol=0.02, atol=0.02)


@behaviour(
    "test_sync_batch_norm_*, test_convert_sync_bn (torch.nn)",
    "SyncBatchNorm: converted, copied, pickled; a second derivative is refused",
    "dear.SyncBatchNorm",
)
def sync_batch_norm_module() -> None:
    original = norms()
    parameters = list(original.parameters())
    converted = dear.SyncBatchNorm.convert_sync_batchnorm(original)
    assert all(mine is theirs for mine, theirs in zip(converted.parameters(), parameters))
    assert [type(one).__name__ for one in converted].count("SyncBatchNorm") == 2
    assert isinstance(dear.SyncBatchNorm.convert_sync_batchnorm(nn.SyncBatchNorm(3)), dear.SyncBatchNorm)
    copied = copy.deepcopy(converted)
    torch.testing.assert_close(copied(images(0, RANK)), converted(images(0, RANK)))
    saved = pickle.loads(pickle.dumps(converted))
    refuses(dear.ConfigError, lambda: saved(images(0, RANK)), "convert")
    saved.eval()(images(0, RANK))
    inputs = torch.randn(4, 3, requires_grad=True)
    output = dear.SyncBatchNorm(3)(inputs).sum()
    refuses(dear.ConfigError, lambda: torch.autograd.grad(output, inputs, create_graph=True), "second derivative")


@behaviour(
    "test_ddp_uneven_inputs_stop_iteration_sync_bn",
    "SyncBatchNorm and uneven inputs: an error on every rank, before a forward pass that one does not run",
    "with throw_on_early_termination; refused without",
)
def sync_batch_norm_in_a_join() -> None:
    made = dear.SyncBatchNorm.convert_sync_batchnorm(norms())
    model, optimizer = dear.distribute(made, sgd(made), fusion="layer")
    refuses(dear.ConfigError, lambda: model.join().__enter__(), "throw_on_early_termination")

    def train() -> None:
        with model.join(throw_on_early_termination=True):
            for step in range(2 + RANK):
                loss_of(model(images(step, RANK))).backward()
                optimizer.step()

    for _ in range(2):
        refuses(dear.MismatchError, train, f"rank {RANK}", "data")
    same(model, model)


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, value: float) -> torch.Tensor:
        if self.training:
            self.before = self.seen.clone()
            self.seen += value
            self.steps += 1
        return (self.weight * value).sum()


@behaviour(
    "test_ddp_broadcast_buffer, test_ddp_buffer_hook_allreduce",
    "buffers: rank 0's or the mean over ranks at synchronize(), rank 0's before each forward, or each rank's own",
    'buffers="synchronize", "average", "forward", "construction"',
)
def buffers_become() -> None:
    for become, expected in (
        ("synchronize", 3.0),
        ("average", 3.0 * (1 + WORLD) / 2),
        ("forward", 3.0),
        ("construction", 3.0 * (1 + RANK)),
    ):
        made = Counts()
        model, optimizer = dear.distribute(made, sgd(made), fusion="layer", buffers=become)
        for step in range(3):
            model(1.0 + RANK).backward()
            optimizer.step()
            assert model.before[0] == (step if become == "forward" else step * (1 + RANK))
        model.synchronize()
        assert model.seen[0] == expected, (become, model.seen)
        assert model.steps == 3
        model.close()


class Renews(nn.Module):
    """Its buffers are other tensors after each forward pass; one is registered in the second."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, value: float) -> torch.Tensor:
        self.mean = 0.5 * self.mean + value
        if "late" in self._buffers:
            self.late = self.late + value
        elif self.mean[0] > value:
            self.register_buffer("late", torch.full((2,), value))
        return (self.weight * value).sum()


@behaviour(
    "test_ddp_broadcast_buffer_via_hook",
    "buffers that the model replaces, or registers later, are looked up at each synchronisation",
)
def buffers_are_looked_up() -> None:
    for become in ("synchronize", "forward"):
        made = Renews()
        model, optimizer = dear.distribute(made, sgd(made), fusion="layer", buffers=become)
        for _ in range(3):
            model(1.0 + RANK).backward()
            optimizer.step()
        if become == "forward":  # before the last one they were rank 0's
            assert (made.mean[0], made.late[0]) == (1.75 + RANK, 2.0 + RANK), (made.mean, made.late)
        model.synchronize()
        assert (made.mean[0], made.late[0]) == (1.75, 2.0), (made.mean, made.late)
        model.close()
