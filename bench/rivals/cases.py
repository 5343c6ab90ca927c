"""What the rivals train: models, samples and losses that are the same in every process, by a seed."""

from __future__ import annotations

import pathlib
import sys
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

BATCHES = 4  # different ones, in turn
Sample = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Case:
    """`make_model` gives the same parameters at each call; `blocks` names the modules that FSDP2 shards one by one."""

    make_model: Callable[[], nn.Module]
    blocks: Callable[[nn.Module], Iterable[nn.Module]]
    make_optimizer: Callable[..., torch.optim.Optimizer]  # of parameters; ZeroRedundancyOptimizer takes it apart
    settings: dict
    make_batch: Callable[[int, torch.Generator], Sample]  # of so many samples
    loss: Callable[[nn.Module, Sample], Tensor]
    device: str = "cpu"

    def on(self, device: str) -> Case:
        def make_batch(size: int, generator: torch.Generator) -> Sample:
            inputs, wanted = self.make_batch(size, generator)
            return inputs.to(device), wanted.to(device)

        return replace(self, make_model=lambda: self.make_model().to(device), make_batch=make_batch, device=device)

    def batches(self, size: int, rank: int) -> list[Sample]:
        return [
            self.make_batch(size, torch.Generator().manual_seed(1000 * rank + number + 1)) for number in range(BATCHES)
        ]


def perceptron(widths: list[int]) -> nn.Sequential:
    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.ReLU()] if layers else []
        layers.append(nn.Linear(inputs, outputs))
    return nn.Sequential(*layers)


def linear_layers(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


def mlp(layers: int = 12, width: int = 1024) -> Case:
    """`layers` of width x width with ReLU between them, by SGD with momentum."""

    def make_batch(size: int, generator: torch.Generator) -> Sample:
        return torch.randn(size, width, generator=generator), torch.randn(size, width, generator=generator)

    return Case(
        make_model=lambda: perceptron([width] * (layers + 1)), blocks=linear_layers, make_optimizer=torch.optim.SGD,
        settings={"lr": 0.3, "momentum": 0.9}, make_batch=make_batch,
        loss=lambda model, sample: functional.mse_loss(model(sample[0]), sample[1]),
    )  # fmt: skip


def digits(layers: int = 3, width: int = 256) -> Case:
    """The multi-layer perceptron of examples/python/digits.py, by AdamW."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        sys.exit("bench/rivals: the case digits needs scikit-learn: pip install scikit-learn")
    images, labels = (torch.tensor(values) for values in load_digits(return_X_y=True))
    images = images.float() / 16

    def make_batch(size: int, generator: torch.Generator) -> Sample:
        chosen = torch.randint(len(labels), (size,), generator=generator)
        return images[chosen], labels[chosen]

    return Case(
        make_model=lambda: perceptron([64, *[width] * (layers - 1), 10]), blocks=linear_layers,
        make_optimizer=torch.optim.AdamW, settings={"lr": 1e-4}, make_batch=make_batch,
        loss=lambda model, sample: functional.cross_entropy(model(sample[0]), sample[1]),
    )  # fmt: skip


class Gpt(nn.Module):
    """A GPT of torch's own layers on bytes, with a tied head."""

    def __init__(self, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(128, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout=0, batch_first=True, norm_first=True, activation="gelu"
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, 128, bias=False)
        nn.init.normal_(self.bytes.weight, std=0.02)
        self.scores.weight = self.bytes.weight
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context), persistent=False)

    def forward(self, text: Tensor) -> Tensor:
        hidden = self.bytes(text) + self.positions.weight
        for block in self.blocks:
            hidden = block(hidden, src_mask=self.mask, is_causal=True)
        return self.scores(self.norm(hidden))


def gpt(layers: int = 4, width: int = 128, heads: int = 4, context: int = 64) -> Case:
    """A character GPT on the standard library's source, by AdamW."""
    source = bytearray()
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))[:40]:
        source += path.read_bytes()
    text = torch.frombuffer(source, dtype=torch.uint8).long().clamp(max=127)

    def make_model() -> nn.Module:
        torch.manual_seed(1)
        return Gpt(layers, width, heads, context)

    def make_batch(size: int, generator: torch.Generator) -> Sample:
        begins = torch.randint(len(text) - context, (size,), generator=generator).tolist()
        pieces = torch.stack([text[begin : begin + context + 1] for begin in begins])
        return pieces[:, :-1].contiguous(), pieces[:, 1:].flatten()

    return Case(
        make_model=make_model, blocks=lambda model: model.blocks, make_optimizer=torch.optim.AdamW,
        settings={"lr": 1e-4}, make_batch=make_batch,
        loss=lambda model, sample: functional.cross_entropy(model(sample[0]).flatten(0, 1), sample[1]),
    )  # fmt: skip


class ResidualBlock(nn.Module):
    """The basic block of a ResNet (He et al., CVPR 2016, https://doi.org/10.1109/CVPR.2016.90)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        same = inputs == outputs and stride == 1
        self.shortcut: nn.Module = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.first(x) + self.shortcut(x))


def resnet(layers: int = 2, width: int = 16) -> Case:
    """Three stages of `layers` basic blocks, of `width` channels and twice and four times as many, on 32 x 32 images of
    noise with 10 labels, by SGD with momentum."""

    def make_model() -> nn.Module:
        torch.manual_seed(1)
        parts: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
        for stage in range(3):
            for layer in range(layers):
                outputs = width << stage
                parts.append(ResidualBlock(channels, outputs, 2 if stage and not layer else 1))
                channels = outputs
        return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))

    def make_batch(size: int, generator: torch.Generator) -> Sample:
        return torch.randn(size, 3, 32, 32, generator=generator), torch.randint(10, (size,), generator=generator)

    return Case(
        make_model=make_model,
        blocks=lambda model: [module for module in model.modules() if isinstance(module, ResidualBlock)],
        make_optimizer=torch.optim.SGD, settings={"lr": 0.01, "momentum": 0.9}, make_batch=make_batch,
        loss=lambda model, sample: functional.cross_entropy(model(sample[0]), sample[1]),
    )  # fmt: skip


CASES: dict[str, Callable[..., Case]] = {"mlp": mlp, "digits": digits, "gpt": gpt, "resnet": resnet}
