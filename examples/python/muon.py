"""Trains the GPT of chargpt.py with an optimiser of its own, Muon, for matrices, and AdamW for the rest.

  python muon.py
  torchrun --nproc-per-node 2 muon.py
  dear launch -n 2 -- python muon.py

Muon (https://kellerjordan.github.io/posts/muon/) orthogonalises the momentum of each matrix, so a matrix cannot be cut into
shards: with update="sharded" and ownership="auto" one rank updates it whole. What AdamW updates is cut as always.
"""

import argparse
import pathlib
import sys

import torch
from torch import Tensor

import dear

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from chargpt import CharGpt, loss_of, read_text  # noqa: E402


def orthogonalised(matrix: Tensor, steps: int) -> Tensor:
    """The nearest matrix whose rows, or columns, are orthonormal, about: by a Newton-Schulz iteration."""
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = wide / (wide.norm() + 1e-7)
    for _ in range(steps):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


class Muon(torch.optim.Optimizer):
    """Momentum of matrices, orthogonalised."""

    def __init__(self, params, lr: float = 0.02, momentum: float = 0.95, steps: int = 5) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "steps": steps})

    @torch.no_grad()
    def step(self, closure=None):
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                momentum = state["momentum"].mul_(group["momentum"]).add_(parameter.grad)
                update = parameter.grad.add(momentum, alpha=group["momentum"])
                scale = max(1, parameter.shape[0] / parameter.shape[1]) ** 0.5
                parameter.add_(orthogonalised(update, group["steps"]), alpha=-group["lr"] * scale)
        return loss


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
    matrices = [parameter for parameter in model.blocks.parameters() if parameter.dim() == 2]
    others = {id(parameter) for parameter in matrices}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in others]
    both = [Muon(matrices), torch.optim.AdamW(rest, lr=3e-3)]
    model, (muon, adamw) = dear.distribute(model, both, update="sharded", ownership="auto")
    if options.batch % model.world_size:
        sys.exit(f"muon.py: rank {model.rank}: --batch {options.batch} is not divisible by {model.world_size} ranks")

    generator = torch.Generator().manual_seed(options.seed)  # alike on all ranks, each of which takes its part
    for step in range(1, options.steps + 1):
        begins = torch.randint(test.numel(), len(text) - options.context, (options.batch,), generator=generator)
        mine = begins[model.rank :: model.world_size]
        loss_of(model, torch.stack([text[begin : begin + options.context + 1] for begin in mine.tolist()])).backward()
        muon.step()
        adamw.step()
        if step % options.report == 0 or step == options.steps:
            with torch.no_grad():
                loss = loss_of(model, test).item()
            if model.rank == 0:
                print(f"step {step}: loss {loss:.5f}", flush=True)
    if model.rank == 0:
        print(f"{model.world_size} ranks, backend {model.backend}")


if __name__ == "__main__":
    main()
