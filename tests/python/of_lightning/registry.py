"""What a case of lightning_test.py needs: its row in docs/lightning.md, modules, data by rank, and a fit by DDP beside one by DeAR."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import dear.lightning  # noqa: F401 (registers the strategies)
import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))
# A folder that the ranks share.
FOLDER = pathlib.Path(os.environ.get("DEAR_TEST_FOLDER", "."))


@dataclass(frozen=True)
class Row:
    """A behaviour that Lightning's own tests of DDPStrategy check, or that its users count on."""

    theirs: str  # the names of their tests
    what: str
    verdict: str  # "as DDP", "refused", or what differs
    case: Callable[[], None]
    group: str  # the backend of the default process group


ROWS: list[Row] = []


def behaviour(
    theirs: str, what: str, verdict: str = "as DDP", group: str = "gloo"
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(case: Callable[[], None]) -> Callable[[], None]:
        ROWS.append(Row(theirs, what, verdict, case, group))
        return case

    return register


def data(samples: int = 32, features: int = 8) -> TensorDataset:
    generator = torch.Generator().manual_seed(7)
    return TensorDataset(torch.randn(samples, features, generator=generator))


def loader(samples: int = 32, batch: int = 4) -> DataLoader:
    return DataLoader(data(samples), batch_size=batch)


class Net(lightning.LightningModule):
    """Its losses are kept, step by step."""

    def __init__(self, optimizer: str = "sgd", schedule: bool = False, norm: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        middle: list[nn.Module] = [nn.BatchNorm1d(16)] if norm else []
        self.net = nn.Sequential(nn.Linear(8, 16), *middle, nn.Tanh(), nn.Linear(16, 3))
        self.chosen, self.schedule = optimizer, schedule
        self.seen: list[float] = []

    def loss(self, batch: Any) -> torch.Tensor:
        x = batch[0]
        return (self.net(x) - x[:, :3].sin()).square().mean()

    def training_step(self, batch: Any, index: int) -> Any:
        loss = self.loss(batch)
        self.seen.append(loss.item())
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val_loss", self.loss(batch), sync_dist=True)

    def test_step(self, batch: Any, index: int) -> None:
        self.log("test_loss", self.loss(batch), sync_dist=True)

    def configure_optimizers(self) -> Any:
        parameters = [one for one in self.parameters() if one.requires_grad]
        optimizer: Any = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        if self.chosen == "adamw":
            optimizer = torch.optim.AdamW(parameters, lr=0.01)
        if not self.schedule:
            return optimizer
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def trainer(strategy: Any = "dear", **options: Any) -> lightning.Trainer:
    settings: dict[str, Any] = {"max_epochs": 1, "devices": 2, "logger": False, "enable_checkpointing": False}
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
    return lightning.Trainer(accelerator="cpu", strategy=strategy, **{**settings, **quiet, **options})


@dataclass
class Outcome:
    module: Any
    trainer: lightning.Trainer
    losses: list[float] = field(default_factory=list)


def fit(
    strategy: Any, module: Any, validate: bool = False, ckpt: Any = None, samples: int = 32, **options: Any
) -> Outcome:
    made = trainer(strategy, **options)
    made.fit(module, loader(samples), loader(16) if validate else None, ckpt_path=ckpt)
    return Outcome(module, made, module.seen)


def same_parameters(one: nn.Module, other: nn.Module, tolerance: float = 0.0) -> None:
    mine, theirs = one.state_dict(), other.state_dict()
    assert mine.keys() == theirs.keys(), (mine.keys(), theirs.keys())
    for name, tensor in theirs.items():
        if tolerance == 0:
            assert torch.equal(mine[name], tensor), f"{name} differs by {(mine[name] - tensor).abs().max().item()}"
        else:
            torch.testing.assert_close(mine[name], tensor, rtol=tolerance, atol=tolerance)


def close(mine: list[float], theirs: list[float], tolerance: float = 1e-6) -> None:
    assert len(mine) == len(theirs) > 0, (mine, theirs)
    for one, other in zip(mine, theirs):
        assert abs(one - other) <= tolerance * max(1.0, abs(other)), (mine, theirs)


def as_ddp(
    make: Callable[[], Any],
    exactly: bool = True,
    dear_strategy: Any = "dear",
    ddp_strategy: Any = "ddp",
    options: Callable[[], dict[str, Any]] = dict,
    **more: Any,
) -> tuple[Outcome, Outcome]:
    """A fit by DDP and one by DeAR: losses to 1e-6; with two ranks each sum has one order, so `exactly` demands the same bits."""
    theirs = fit(ddp_strategy, make(), **options(), **more)
    mine = fit(dear_strategy, make(), **options(), **more)
    close(mine.losses, theirs.losses)
    same_parameters(mine.module, theirs.module, 0.0 if exactly else 1e-6)
    return mine, theirs


def refuses(kind: type[BaseException], act: Callable[[], Any], *words: str) -> None:
    try:
        act()
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{error} does not say {missing}"
        return
    raise AssertionError(f"no {kind.__name__}")
