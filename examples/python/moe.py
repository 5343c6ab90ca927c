"""Trains a small GPT with mixtures of experts on the licences of a Debian system.

  python moe.py
  torchrun --nproc-per-node 2 moe.py
  torchrun --nproc-per-node 2 moe.py --overlap none

Each block has attention and a mixture of experts, which lie on the ranks: tokens travel to their experts and back, under weight
gradients of the other layers (--overlap lancet) and under other parts of the batch (--parts 2). Tokens are bytes. All ranks together take `--batch` pieces of text in a step.
"""

import argparse
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

import dear

LICENCES = pathlib.Path("/usr/share/common-licenses")


def read_text() -> Tensor:
    """The bytes of all licences in order of their names."""
    found = b"".join(
        path.read_bytes() for path in sorted(LICENCES.glob("*")) if path.is_file() and not path.is_symlink()
    )
    if not found:
        sys.exit(f"moe.py: there is no text in {LICENCES}: run it on Debian or a system that derives from it")
    return torch.tensor(list(found))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, **mixture) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.experts_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mixture = dear.MoE(width, 4 * width, **mixture)

    def attention(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        parts = self.inputs(hidden).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        return self.output(attended.transpose(1, 2).reshape(batch, length, width))

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden))
        return hidden + self.mixture(self.experts_norm(hidden))


class MoeGpt(nn.Module):
    """Takes (batch, length) bytes, gives (batch, length, 256) scores."""

    def __init__(self, layers: int, width: int, heads: int, context: int, **mixture) -> None:
        super().__init__()
        self.bytes, self.positions = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, **mixture) for _ in range(layers))
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, text: Tensor) -> Tensor:
        hidden = self.bytes(text) + self.positions(torch.arange(text.shape[1]))
        for block in self.blocks:
            hidden = block(hidden)
        return self.scores(self.norm(hidden))


def loss_of(model: nn.Module, pieces: Tensor) -> Tensor:
    """The mean loss of predicting each byte of (batch, context + 1) from those before it."""
    return functional.cross_entropy(model(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("steps", 50), ("batch", 16), ("layers", 2), ("width", 64), ("heads", 4), ("context", 64),
                        ("experts", 4), ("parts", 1), ("report", 10)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--gate", default="switch")
    parser.add_argument("--overlap", default="lancet")
    options = parser.parse_args()

    if "WORLD_SIZE" in os.environ:
        dear.init_process_group(say=lambda _: None)
    torch.manual_seed(1)
    text = read_text()
    model = MoeGpt(
        options.layers, options.width, options.heads, options.context,
        experts=options.experts, gate=options.gate,
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer = dear.distribute(model, optimizer, overlap=options.overlap, parts=options.parts)
    if options.batch % model.world_size:
        sys.exit(f"moe.py: rank {model.rank}: --batch {options.batch} is not divisible by {model.world_size} ranks")

    generator = torch.Generator().manual_seed(1)  # alike on all ranks, each of which takes its part
    test = text[: 16 * (options.context + 1)].view(16, -1)
    begun = time.perf_counter()
    for step in range(1, options.steps + 1):
        begins = torch.randint(test.numel(), len(text) - options.context, (options.batch,), generator=generator)
        mine = begins[model.rank :: model.world_size]
        loss = loss_of(model, torch.stack([text[begin : begin + options.context + 1] for begin in mine.tolist()]))
        (loss + sum(block.mixture.auxiliary_loss for block in model.blocks)).backward()
        optimizer.clip_grad_norm_(1.0)
        optimizer.step()
        if step % options.report == 0 or step == options.steps:
            with torch.no_grad():
                loss = loss_of(model, test).item()
            if model.rank == 0:
                print(f"step {step}: loss {loss:.5f}", flush=True)
    if model.rank == 0:
        told = model.blocks[0].mixture.statistics()
        seconds = (time.perf_counter() - begun) / options.steps
        print(f"{model.world_size} ranks, backend {model.backend}; {1e3 * seconds:.1f} ms a step")
        choices = told["by_expert"]
        print(f"block 0: tokens by expert {choices}, {told['dropped']} of {sum(choices)} dropped on rank 0")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
