"""Trains a small GPT on the characters of Python's standard library.

  python chargpt.py
  torchrun --nproc-per-node 2 chargpt.py
  dear launch -n 2 -- python chargpt.py
  mpirun --bind-to none -n 2 python chargpt.py

All ranks together take `--batch` pieces of text in a step, so the losses do not depend on the number of ranks.
The weight of the last layer is that of the embedding: one parameter that is used twice.
"""

import argparse
import pathlib
import sys
import sysconfig

import torch
from torch import Tensor, nn
from torch.nn import functional

import dear

CHARACTERS = [chr(code) for code in (9, 10, *range(32, 127))]  # ASCII: what is none of these becomes a space


def read_text(length: int) -> Tensor:
    """The first `length` characters of the standard library's modules in order of their names, as numbers."""
    numbers = {character: number for number, character in enumerate(CHARACTERS)}
    found: list[int] = []
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [numbers.get(character, numbers[" "]) for character in text[: length - len(found)]]
        if len(found) == length:
            return torch.tensor(found)
    sys.exit(
        f"chargpt.py: the standard library has {len(found)} characters, fewer than the {length} that are asked for"
    )


class Attention(nn.Module):
    """Causal self-attention of several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        parts = self.inputs(hidden).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        return self.output(attended.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """One layer: attention and a perceptron, each normalised beforehand and added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.perceptron_norm = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden))
        return hidden + self.perceptron(self.perceptron_norm(hidden))


class CharGpt(nn.Module):
    """A GPT whose tokens are characters. Takes (batch, length) numbers, gives (batch, length, characters) scores."""

    def __init__(self, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.context = context
        self.characters = nn.Embedding(len(CHARACTERS), width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, len(CHARACTERS), bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        self.scores.weight = self.characters.weight

    def forward(self, text: Tensor) -> Tensor:
        hidden = self.characters(text) + self.positions(torch.arange(text.shape[1], device=text.device))
        for block in self.blocks:
            hidden = block(hidden)
        return self.scores(self.norm(hidden))


def loss_of(model: nn.Module, pieces: Tensor) -> Tensor:
    """The mean loss of predicting each character of (batch, context + 1) from those before it."""
    scores = model(pieces[:, :-1])
    return functional.cross_entropy(scores.flatten(0, 1), pieces[:, 1:].flatten())


@torch.no_grad()
def write_on(model: nn.Module, text: Tensor, length: int, generator: torch.Generator) -> str:
    """What the model writes behind `text`: `length` characters, each drawn by its probability."""
    for _ in range(length):
        scores = model(text[None, -model.context :])[0, -1]
        text = torch.cat([text, torch.multinomial(scores.softmax(0), 1, generator=generator)])
    return "".join(CHARACTERS[number] for number in text[-length:].tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("steps", 50), ("batch", 16), ("layers", 2), ("width", 64), ("heads", 4), ("context", 64), ("seed", 1),
                        ("characters", 200_000), ("report", 10)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    text = read_text(options.characters)
    test = text[: 16 * (options.context + 1)].view(16, -1)
    model = CharGpt(options.layers, options.width, options.heads, options.context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=options.steps)
    model, optimizer = dear.distribute(model, optimizer)
    if options.batch % model.world_size:
        sys.exit(f"chargpt.py: rank {model.rank}: --batch {options.batch} is not divisible by {model.world_size} ranks")

    generator = torch.Generator().manual_seed(options.seed)  # alike on all ranks, each of which takes its part
    for step in range(1, options.steps + 1):
        begins = torch.randint(test.numel(), len(text) - options.context, (options.batch,), generator=generator)
        mine = begins[model.rank :: model.world_size]
        optimizer.zero_grad()
        loss_of(model, torch.stack([text[begin : begin + options.context + 1] for begin in mine.tolist()])).backward()
        optimizer.step()
        scheduler.step()
        if step % options.report == 0 or step == options.steps:
            with torch.no_grad():
                loss = loss_of(model, test).item()
            if model.rank == 0:
                print(f"step {step}: loss {loss:.5f}", flush=True)
    written = write_on(model, test[0, : options.context], 60, generator)
    if model.rank == 0:
        print(f"{model.world_size} ranks, backend {model.backend}; it writes: {written!r}")


if __name__ == "__main__":
    main()
