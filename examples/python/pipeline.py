"""Trains a small GPT whose layers lie on several ranks, on the licences of a Debian system.

  python pipeline.py
  torchrun --nproc-per-node 2 pipeline.py
  torchrun --nproc-per-node 2 pipeline.py --schedule zb-h1 --compress ada-top-k:20
  torchrun --nproc-per-node 4 pipeline.py --replicas 2

Each rank has some layers of one model; activations and their gradients travel between neighbours, the batch goes through in
micro-batches. The head's weight is that of the embedding, on the first and the last rank. Replicas are pipelines beside each
other, each with its part of the batch. Tokens are bytes. Losses do not depend on the number of ranks.
"""

import argparse
import os
import pathlib
import sys

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
        sys.exit(f"pipeline.py: there is no text in {LICENCES}: run it on Debian or a system that derives from it")
    return torch.tensor(list(found))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.perceptron_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attention(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        parts = self.inputs(hidden).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        return self.output(attended.transpose(1, 2).reshape(batch, length, width))

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden))
        return hidden + self.perceptron(self.perceptron_norm(hidden))


class Gpt(nn.Module):
    """Takes (batch, length) bytes, gives (batch, length, 256) scores."""

    def __init__(self, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.bytes, self.positions = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)
        nn.init.normal_(self.bytes.weight, std=0.02)
        self.head.weight = self.bytes.weight

    def forward(self, text: Tensor) -> Tensor:
        hidden = self.bytes(text) + self.positions(torch.arange(text.shape[1], device=text.device))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


def cross_entropy(scores: Tensor, following: Tensor) -> Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), following.flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (
        ("steps", 60),
        ("batch", 16),
        ("micro-batches", 4),
        ("layers", 4),
        ("width", 64),
        ("heads", 4),
        ("context", 64),
        ("report", 10),
        ("replicas", 1),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--schedule", choices=("1f1b", "gpipe", "zb-h1"), default="1f1b")
    parser.add_argument("--compress", help="what crosses slow links: top-k:RATIO or ada-top-k:RATIO")
    parser.add_argument("--cluster", help="a file of what the ranks' links and devices are like")
    options = parser.parse_args()

    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
    text = read_text()
    torch.manual_seed(1)
    model = Gpt(options.layers, options.width, options.heads, options.context)
    generator = torch.Generator().manual_seed(2)

    def batch() -> tuple[Tensor, Tensor]:
        begins = torch.randint(0, len(text) - options.context - 1, (options.batch,), generator=generator)
        pieces = text[begins[:, None] + torch.arange(options.context + 1)]
        return pieces[:, :-1], pieces[:, 1:]

    pipe, optimizer = dear.pipeline(
        model,
        torch.optim.AdamW(model.parameters(), lr=3e-3),
        sample=batch()[0].chunk(options.replicas)[0],
        micro_batches=options.micro_batches,
        schedule=options.schedule,
        compress=options.compress,
        cluster=options.cluster,
        replicas=options.replicas,
    )
    if pipe.rank == 0:
        print(f"{pipe.world_size} ranks, stages of {', '.join(str(len(stage)) for stage in pipe.stages)} operators")
    for step in range(1, options.steps + 1):
        optimizer.zero_grad()
        x, y = (one.chunk(options.replicas)[pipe.replica] for one in batch())
        loss = pipe.step(x, y, loss=cross_entropy)
        pipe.clip_grad_norm_(1.0)
        optimizer.step()
        if pipe.rank == 0 and step % options.report == 0:
            print(f"step {step}: loss {loss:.5f}", flush=True)
    x, y = (one.chunk(options.replicas)[pipe.replica] for one in batch())
    loss = pipe.evaluate(x, y, loss=cross_entropy)
    parameters = sum(value.numel() for value in pipe.state_dict().values())  # whole, on every rank
    if pipe.rank == 0:
        print(f"loss of a batch that it was not trained on: {loss:.5f}")
        print(f"a state of {parameters:,} numbers; rank 0 has sent {pipe.bytes_sent:,} bytes")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
