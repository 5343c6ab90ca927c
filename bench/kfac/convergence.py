"""K-FAC against SGD and AdamW on two real tasks, by iterations and by seconds: the figures of docs/study/kfac.

    PYTHONPATH=build/release/python build/release/dear launch -n 2 python bench/kfac/convergence.py docs/study/kfac/convergence.json

For each optimiser every setting of a grid trains once with a first seed; the one that reaches the task's target loss first, else the
one with the lowest last loss, is trained with further seeds. All begin with the same parameters and see the same batches.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, Callable

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import dear

BATCH = 128  # samples over all ranks
SEEDS = (1, 2, 3)
WINDOW = 20  # losses of so many steps are averaged
CONTEXT = 12  # characters


class Digits:
    """A deep autoencoder of 8 x 8 digits: badly conditioned, the classic of second-order methods (Martens and Grosse 2015)."""

    name = "digits, a deep autoencoder"
    steps = 600
    target = 1.5  # squared error of an image

    def __init__(self) -> None:
        self.images = torch.tensor(load_digits().data, dtype=torch.float32) / 16

    def model(self) -> nn.Module:
        widths = (64, 48, 24, 8, 24, 48, 64)
        layers: list[nn.Module] = []
        for number, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
            layers += [nn.Linear(inputs, outputs)] + ([nn.Tanh()] if number + 2 < len(widths) else [])
        return nn.Sequential(*layers)

    def loss(self, model: nn.Module, rows: Tensor) -> Tensor:
        images = self.images[rows % len(self.images)]
        return (model(images) - images).square().sum(1).mean()


class Characters:
    """The next character of a licence's text, by the twelve before it."""

    name = "characters of a text"
    steps = 600
    target = 1.8  # nats

    def __init__(self) -> None:
        with open("/usr/share/common-licenses/GPL-3", encoding="utf-8") as file:
            text = file.read()
        index = {character: number for number, character in enumerate(sorted(set(text)))}
        self.text = torch.tensor([index[character] for character in text])
        self.characters = len(index)

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Embedding(self.characters, 16),
            nn.Flatten(),
            nn.Linear(16 * CONTEXT, 128),
            nn.Tanh(),
            nn.Linear(128, 128),
            nn.Tanh(),
            nn.Linear(128, self.characters),
        )

    def loss(self, model: nn.Module, rows: Tensor) -> Tensor:
        places = rows % (len(self.text) - CONTEXT)
        inputs = self.text[places[:, None] + torch.arange(CONTEXT)]
        return nn.functional.cross_entropy(model(inputs), self.text[places + CONTEXT])


@dataclasses.dataclass
class Setting:
    optimizer: str
    lr: float
    damping: float = 0
    kl_clip: float = 0

    def text(self) -> str:
        more = f", damping {self.damping:g}, kl-clip {self.kl_clip:g}" if self.damping else ""
        return f"learning rate {self.lr:g}{more}"


def settings() -> Iterator[Setting]:
    for lr in (0.1, 0.05, 0.03, 0.02, 0.01, 0.003):
        yield Setting("SGD", lr)
    for lr in (0.03, 0.02, 0.01, 0.005, 0.003, 0.001):
        yield Setting("AdamW", lr)
    for lr in (0.3, 0.1):
        for damping in (0.5, 0.3, 0.1):
            yield Setting("K-FAC", lr, damping, 0.01)


@dataclasses.dataclass
class Curve:
    losses: list[float]
    seconds: list[float]  # when each step had ended

    def first_below(self, target: float) -> int | None:
        return next((step for step, loss in enumerate(self.losses) if loss <= target), None)


def train(task: Any, setting: Setting, seed: int, group: Any) -> Curve:
    torch.manual_seed(seed)
    net = task.model()
    optimizer: Any = (
        torch.optim.AdamW(net.parameters(), setting.lr, weight_decay=0)
        if setting.optimizer == "AdamW"
        else torch.optim.SGD(net.parameters(), setting.lr, momentum=0.9)
    )
    model, optimizer = dear.distribute(net, optimizer, process_group=group, policy="wfbp", fusion="1MB")
    kfac = (
        dear.KFAC(model, damping=setting.damping, kl_clip=setting.kl_clip) if setting.optimizer == "K-FAC" else None
    )
    generator = torch.Generator().manual_seed(1000 + seed)
    share = BATCH // model.world_size
    raw: list[float] = []
    seconds: list[float] = []
    begin = time.perf_counter()
    for _ in range(task.steps):
        rows = torch.randint(1 << 30, (BATCH,), generator=generator)[share * model.rank : share * (model.rank + 1)]
        loss = task.loss(model, rows)
        loss.backward()
        if kfac is not None:
            kfac.step()
        optimizer.step()
        raw.append(loss.item())
        seconds.append(time.perf_counter() - begin)
    model.close()
    total = torch.tensor(raw, dtype=torch.float64)
    everyone = dear_mean(total, group)
    smooth = [everyone[max(0, step - WINDOW + 1) : step + 1].mean().item() for step in range(task.steps)]
    return Curve([value if math.isfinite(value) else 1e9 for value in smooth], seconds)


def dear_mean(value: Tensor, group: Any) -> Tensor:
    """Over ranks: the gradient of a parameter that is `value` on this rank."""
    holder = nn.Linear(1, 1, bias=False).double()
    holder.weight = nn.Parameter(torch.zeros(len(value), 1, dtype=torch.float64))
    model, optimizer = dear.distribute(
        holder, torch.optim.SGD(holder.parameters(), lr=1.0), process_group=group, policy="wfbp", fusion="layer"
    )
    (holder.weight[:, 0] * value.nan_to_num(1e9, 1e9, 1e9)).sum().backward()
    optimizer.reduce_gradients()
    found = holder.weight.grad[:, 0].clone()
    optimizer.step()
    model.close()
    return found


def best_of(task: Any, curves: list[tuple[Setting, Curve]]) -> Setting:
    def key(one: tuple[Setting, Curve]) -> tuple[float, float]:
        reached = one[1].first_below(task.target)
        return (math.inf if reached is None else reached, one[1].losses[-1])

    return min(curves, key=key)[0]


def thin(curve: Curve) -> dict[str, Any]:
    steps = range(WINDOW - 1, len(curve.losses), 10)
    return {
        "losses": [round(curve.losses[step], 5) for step in steps],
        "seconds": [round(curve.seconds[step], 4) for step in steps],
        "steps": list(steps),
    }


def study(make: Callable[[], Any], group: Any) -> dict[str, Any]:
    task = make()
    rivals = []
    for name in ("SGD", "AdamW", "K-FAC"):
        searched = [(one, train(task, one, SEEDS[0], group)) for one in settings() if one.optimizer == name]
        best = best_of(task, searched)
        runs = [train(task, best, seed, group) for seed in SEEDS]
        rivals.append(
            {
                "optimizer": name,
                "searched": [
                    {
                        "setting": setting.text(),
                        "last_loss": round(curve.losses[-1], 5),
                        "steps_to_target": curve.first_below(task.target),
                    }
                    for setting, curve in searched
                ],
                "best": best.text(),
                "steps_to_target": [run.first_below(task.target) for run in runs],
                "seconds_to_target": [
                    None if (at := run.first_below(task.target)) is None else round(run.seconds[at], 3) for run in runs
                ],
                "curves": [thin(run) for run in runs],
            }
        )
        if group.rank == 0:
            print(task.name, name, best.text(), rivals[-1]["steps_to_target"], rivals[-1]["seconds_to_target"], flush=True)
    return {"task": task.name, "target": task.target, "batch": BATCH, "window": WINDOW, "rivals": rivals}


def machine() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        name = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    return f"{name}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f} at the end"


def main() -> None:
    torch.set_num_threads(1)
    group = dear.init()
    tasks = [study(make, group) for make in (Digits, Characters)]
    if group.rank == 0:
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            json.dump(
                {"ranks": group.size, "torch": torch.__version__, "machine": machine(), "tasks": tasks}, file, indent=1
            )
            file.write("\n")


if __name__ == "__main__":
    main()
