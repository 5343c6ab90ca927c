"""Which rows of a mixture of experts go where: what is computed of gates and counts, as indices."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Optional

import torch
from torch import Tensor

from . import _C, _moe_cut

ROWS = 16
"""Each product of an expert has a multiple of so many rows, at least one such multiple, filled up with zeros. MKL rounds a row
by how many there are, and by blocks of so many: thus its bits depend neither on the parts nor on other tokens."""


def choices_of(probabilities: Tensor, choices: int) -> Tensor:
    """The experts with the largest probabilities, (tokens, choices) in int64; of equal ones the first."""
    first = probabilities.argmax(1)
    if choices == 1:
        return first[:, None]
    others = probabilities.scatter(1, first[:, None], -1.0)
    return torch.stack([first, others.argmax(1)], 1)


@dataclass
class Sending:
    """What one part of the batch sends: its rows, by expert, those of an expert in the order of tokens."""

    counts: list[int]  # by expert
    choice_of_row: Tensor  # which choice of the part's tokens a row is: token * choices + choice
    row_of_choice: Tensor  # (tokens, choices), the number of rows for one that was dropped


def place(
    chosen: Tensor,
    scores: Tensor,
    ranges: list[tuple[int, int]],
    capacity: int,
    experts: int,
    *,
    whole: bool,
    used: Optional[Tensor] = None,
) -> list[Sending]:
    """Where each choice goes, part by part. `whole`: tokens of the whole batch are placed by importance, and then cut;
    else in their order, each part told what those before took: `used`, by expert, has what earlier calls took, and then these."""
    width = chosen.shape[1]
    flat = chosen.to("cpu", torch.int32).reshape(-1).contiguous()
    slots = torch.empty(flat.numel(), dtype=torch.int64)
    used = torch.zeros(experts, dtype=torch.int64) if used is None else used
    if whole:
        importance = scores.detach().to("cpu", torch.float32).reshape(-1).contiguous()
        _C.moe_place_by_importance(flat, width, importance, capacity, experts, slots)
    parts = []
    for begin, end in ranges:
        mine, places = flat[begin * width : end * width], slots[begin * width : end * width]
        if whole:
            counts = _C.moe_take_part(mine, experts, places)
        else:
            counts = _C.moe_place_in_order(mine, capacity, used, places)
        parts.append(_sending(mine, places, counts, width, chosen.device))
    return parts


def _sending(experts: Tensor, places: Tensor, counts: list[int], width: int, device: torch.device) -> Sending:
    rows = sum(counts)
    begins = torch.tensor([0, *accumulate(counts)][:-1])
    kept = places >= 0
    row_of_choice = torch.where(kept, begins[experts.long()] + places, rows)
    choice_of_row = torch.empty(rows, dtype=torch.int64)
    choice_of_row[row_of_choice[kept]] = kept.nonzero()[:, 0]
    return Sending(counts, choice_of_row.to(device), row_of_choice.view(-1, width).to(device))


class Whole:
    """What the parts of a batch, of which each comes to a mixture by itself, tell each other there."""

    def __init__(self, experts: int, ranks: int, cut: _moe_cut.Cut) -> None:
        self.cut = cut
        self.used = torch.zeros(experts, dtype=torch.int64)  # places, by expert
        self.received = [[0] * (experts // ranks) for _ in range(ranks)]  # rows, by rank and expert of this rank
        self.of_gate: list[tuple[Tensor, ...]] = []  # by part: logits, probabilities, choices, scores
        self.placed: Optional[list[Sending]] = None  # where the whole batch is placed at once
        self.products: Any = None

    def all_of_gate(self) -> list[Tensor]:
        return [torch.cat(one) for one in zip(*self.of_gate)]


class Arriving:
    """What one part of all ranks' batches brings to the experts of this rank: received by rank and then expert, computed
    by expert and then rank, the rows of each expert filled up."""

    def __init__(self, counts: list[list[int]], device: torch.device) -> None:
        """counts: by rank, then expert of this rank."""
        experts = len(counts[0])
        self.counts = counts
        self.rows = sum(map(sum, counts))
        totals = [sum(of_rank[expert] for of_rank in counts) for expert in range(experts)]
        padded = [max(ROWS, -(-total // ROWS) * ROWS) for total in totals]
        self.padded = torch.tensor(padded)  # rows of each expert
        self.begins = [0, *accumulate(padded)]  # of each expert's rows, and their end
        shifts, lengths, received = [], [], 0
        filled = list(self.begins)
        for of_rank in counts:
            for expert, count in enumerate(of_rank):
                shifts.append(filled[expert] - received)
                lengths.append(count)
                filled[expert] += count
                received += count
        place = torch.repeat_interleave(torch.tensor(shifts), torch.tensor(lengths)) + torch.arange(self.rows)
        row = torch.full((self.begins[-1],), self.rows)
        row[place] = torch.arange(self.rows)
        self.place_of_received = place.to(device)
        self.received_of_place = row.to(device)  # the number of rows received for a place that is filled up

    def block(self, expert: int, rank: int) -> slice:
        """Where the rows of an expert from a rank are."""
        begin = self.begins[expert] + sum(self.counts[earlier][expert] for earlier in range(rank))
        return slice(begin, begin + self.counts[rank][expert])


def gathered(blocks: list[tuple[Arriving, Tensor]], expert: int) -> Tensor:
    """The rows of an expert from all parts as the uncut batch has them: by rank, then part."""
    ranks = range(len(blocks[0][0].counts))
    if len(blocks) == 1:
        arriving, rows = blocks[0]
        begin = arriving.begins[expert]
        return rows[begin : begin + sum(arriving.counts[rank][expert] for rank in ranks)]
    return torch.cat([rows[arriving.block(expert, rank)] for rank in ranks for arriving, rows in blocks])


def balance_of(probabilities: Tensor, chosen: Tensor, experts: int) -> Tensor:
    """The load-balancing loss of Switch (Fedus et al. 2022, arXiv 2101.03961): 1 where all experts are chosen alike."""
    share = torch.bincount(chosen.reshape(-1), minlength=experts).to(probabilities.dtype) / chosen.numel()
    return experts * (share * probabilities.mean(0)).sum()


def z_of(logits: Tensor) -> Tensor:
    """The router z-loss (Zoph et al. 2022, arXiv 2202.08906)."""
    return torch.logsumexp(logits, 1).square().mean()
