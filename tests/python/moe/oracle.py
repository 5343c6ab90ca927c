"""What one process computes of a mixture of experts: plain loops over tokens, without a line of dear."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


def places(chosen: list[list[int]], capacity: int, order: list[int]) -> list[list[bool]]:
    """Which choices of each token find a place, when tokens take theirs in this order, all choices of one at once."""
    taken: dict[int, int] = {}
    kept = [[False] * len(experts) for experts in chosen]
    for token in order:
        for choice, expert in enumerate(chosen[token]):
            if taken.get(expert, 0) < capacity:
                taken[expert] = taken.get(expert, 0) + 1
                kept[token][choice] = True
    return kept


@dataclass
class Mixed:
    output: Tensor
    chosen: list[list[int]]
    kept: list[list[bool]]
    balance: Tensor
    z: Tensor

    @property
    def dropped(self) -> int:
        return sum(not one for of_token in self.kept for one in of_token)


def mixture(x: Tensor, state: dict[str, Tensor], kind: str, choices: int, factor: float) -> Mixed:
    """Of one rank's batch (batch, ..., width), with the parameters of all experts."""
    gate, inputs, outputs = state["gate.weight"], state["inputs"], state["outputs"]
    tokens, experts = x.reshape(-1, x.shape[-1]), gate.shape[0]
    logits = tokens @ gate.T
    chances = torch.exp(logits) / torch.exp(logits).sum(1, keepdim=True)
    chosen = []
    for row in chances.tolist():
        ranked = sorted(range(experts), key=lambda expert: (-row[expert], expert))
        chosen.append(ranked[:choices])
    order = list(range(len(tokens)))
    if kind == "batch-prioritized":
        importance = [sum(chances[t, e].item() for e in chosen[t]) for t in order]
        order.sort(key=lambda token: -importance[token])
    kept = places(chosen, int(factor * math.ceil(len(tokens) / experts)), order)
    rows: list[Tensor] = []
    for token, of_token in enumerate(chosen):
        result = torch.zeros_like(tokens[token])
        total = sum(chances[token, expert] for expert in of_token) if choices == 2 else 1
        for expert, keeps in zip(of_token, kept[token]):
            if keeps:
                hidden = inputs[expert] @ tokens[token]
                hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
                result = result + chances[token, expert] / total * (outputs[expert] @ hidden)
        rows.append(result)
    shares = [sum(e in one for one in chosen) / (len(chosen) * choices) for e in range(experts)]
    balance = experts * sum(share * chances[:, e].mean() for e, share in enumerate(shares))
    z = (torch.log(torch.exp(logits).sum(1)) ** 2).mean()
    return Mixed(torch.stack(rows).reshape(x.shape), chosen, kept, balance, z)  # type: ignore[arg-type]


def leaves(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone().requires_grad_() for name, value in state.items()}


def own_part(whole: Tensor, rank: int, ranks: int) -> Any:
    here = len(whole) // ranks
    return whole[rank * here : (rank + 1) * here]
