"""The area under the ROC curve: dear.auc() of all ranks, dear.AUCMLoss to train for it, dear.DualSampler for its batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import torch
from torch import Tensor, nn

from . import _C
from ._auc_ranks import Ranks
from ._process_group import ProcessGroup


def auc(scores: Any, labels: Any, *, process_group: ProcessGroup = None, timeout: float = 120.0) -> float:
    """The share of pairs of a positive and a negative sample, of all ranks, in which the positive one has the larger score; ties
    count one half. Exact: pairs are counted in whole numbers, as they would be of all samples on one rank.

    scores, labels: tensors, arrays or lists with an element for each sample of this rank, of any number, also none. Labels are
        1 or True for the positive class, and 0, -1 or False for the other.
    process_group: of torch.distributed, or a dear.Group; by default torch.distributed's default group, else the launcher's ranks.

    Every rank calls it, and gets the same. The scores of the rarer class travel to all ranks. ConfigError, on every rank, for
    a score that is NaN, other labels, and where all ranks together lack a class.
    """
    ranks = Ranks(process_group, timeout)
    halves: list[Tensor] = []

    def counts() -> dict[str, int]:
        values = torch.as_tensor(scores).detach().reshape(-1).to("cpu", torch.float64)
        positive, count = _classes(values, torch.as_tensor(labels).detach().cpu(), "auc")
        wrong = int(values.isnan().sum())
        if wrong:
            raise _C.ConfigError(f"auc: {wrong} of {len(values)} scores are NaN: look for the step that made them")
        halves.extend((values[~positive], values[positive]))
        return count

    everyone = ranks.told(counts)
    total = {name: sum(one[name] for one in everyone) for name in ("positive", "zero", "minus")}
    _require_one_coding(total["zero"], total["minus"], "auc")
    negatives, positives = total["zero"] + total["minus"], total["positive"]
    if negatives == 0 or positives == 0:
        lacking = "positive" if positives == 0 else "negative"
        raise _C.ConfigError(
            f"auc: all ranks together have no {lacking} sample, and AUC is of pairs: give samples of both"
        )
    rarer = 1 if positives <= negatives else 0
    travelling = ranks.gathered(halves[rarer].numpy().tobytes())
    rare = torch.frombuffer(bytearray(b"".join(travelling)), dtype=torch.float64).sort().values
    mine = halves[1 - rarer]
    # Twice the pairs in which one of `mine` is the larger: strictly, and strictly or as large.
    larger = sum(int(torch.searchsorted(rare, mine, right=right).sum()) for right in (False, True))
    won = sum(int(one) for one in ranks.gathered(str(larger).encode()))
    pairs = negatives * positives
    return (2 * pairs - won if rarer == 1 else won) / (2 * pairs)


class AUCMLoss(nn.Module):
    """The loss whose saddle point has the best AUC by the squared margin of pairs (Ying, Wen and Lyu 2016; as in CoDA: Guo et al.
    2020, https://doi.org/10.48550/arXiv.2005.02426). With scores h of samples and p the share of positives:

        F = (1-p) (h-a)^2 [y=1] + p (h-b)^2 [y=0] + 2 alpha (p (1-p) margin + p h [y=0] - (1-p) h [y=1]) - p (1-p) alpha^2

    in the mean over a batch, to be minimised over the model, `a` and `b`, and maximised over `alpha`: train it by dear.CoDA. At the
    best a = E[h | y=1], b = E[h | y=0], alpha = margin + b - a it is p (1-p) E[(margin - h + h')^2 | y=1, y'=0]. Names and arguments
    are those of LibAUC's AUCMLoss. What differs: `imratio` counts where it is given, `alpha` begins at `margin`, which is the best
    for a = b = 0, and the loss has no dimensions.

    margin: by which a positive sample is to score above a negative one; above 0.
    imratio: p, the share of positives in the batches (with a DualSampler, its sampling_rate). None: that of each batch.
    version: "v1", as above; "v2" is F / (p (1-p)) with the means of each class, whatever the batch's share.
    device, dtype: of a, b and alpha, tensors of one element.

    loss(y_pred, y_true): a score and a label for each sample; labels are 1, and 0 or -1. auto=True: p of this batch, in spite of
    `imratio`. ConfigError for other labels, and for a batch that lacks a class unless v1 has an `imratio`.
    """

    def __init__(
        self,
        margin: float = 1.0,
        imratio: Optional[float] = None,
        version: str = "v1",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if version not in ("v1", "v2"):
            raise _C.ConfigError(f'AUCMLoss: version="{version}": give "v1" or "v2"')
        if not (math.isfinite(margin) and margin > 0):
            raise _C.ConfigError(f"AUCMLoss: margin={margin}: give a number above 0")
        if imratio is not None and not 0 < imratio < 1:
            raise _C.ConfigError(
                f"AUCMLoss: imratio={imratio}: the share of positives is above 0 and below 1, or None for that of each batch"
            )
        self.margin, self.p, self.version = float(margin), imratio, version
        self.a = nn.Parameter(torch.zeros(1, device=device, dtype=dtype))
        self.b = nn.Parameter(torch.zeros(1, device=device, dtype=dtype))
        self.alpha = nn.Parameter(torch.full((1,), self.margin, device=device, dtype=dtype))
        self._seen: Optional[Tensor] = None
        self.prior: Optional[float] = None  # p of the last batch in training, where it was not the batch's own

    def forward(self, y_pred: Tensor, y_true: Tensor, auto: bool = False) -> Tensor:
        h = y_pred.reshape(-1)
        if h.device != self.a.device:
            raise _C.ConfigError(
                f"AUCMLoss: scores are on {h.device} and the loss is on {self.a.device}: move one of them"
            )
        positive, count = _classes(h, y_true, "AUCMLoss")
        _require_one_coding(count["zero"], count["minus"], "AUCMLoss")
        positives, samples = count["positive"], len(h)
        p = None if auto or self.version == "v2" else self.p
        if samples == 0 or (p is None and positives in (0, samples)):
            lacking = "sample" if samples == 0 else "positive sample" if positives == 0 else "negative sample"
            raise _C.ConfigError(
                f"AUCMLoss: a batch has no {lacking}: take a dear.DualSampler, or version v1 with an imratio"
            )
        if torch.is_grad_enabled() and self.training:
            self.prior = p
            self._remember(h.detach(), positive, positives)
        share = positives / samples if p is None else p
        scale = 1 / (share * (1 - share)) if self.version == "v2" else 1.0
        negative = ~positive
        terms = torch.where(positive, (1 - share) * (h - self.a).square(), share * (h - self.b).square())
        ranking = torch.where(negative, share * h, (share - 1) * h)
        inner = share * (1 - share) * (2 * self.alpha * self.margin - self.alpha.square())
        return scale * (terms.mean() + 2 * self.alpha * ranking.mean() + inner).squeeze()

    def _remember(self, h: Tensor, positive: Tensor, positives: int) -> None:
        h = h.to(torch.float64)
        above = h[positive].sum()
        sums = torch.stack((h.sum() - above, above))
        sums = torch.cat((sums, sums.new_tensor([len(h) - positives, positives])))
        self._seen = sums if self._seen is None else self._seen + sums

    def take_seen(self) -> Tensor:
        """Since the last call, of batches in training: the sums of scores of negative and of positive samples, then how many
        there were of each; in fp64."""
        seen, self._seen = self._seen, None
        return torch.zeros(4, dtype=torch.float64, device=self.a.device) if seen is None else seen

    @property
    def dual_limit(self) -> float:
        """The step size at which ascent in alpha begins to diverge."""
        if self.version == "v2":
            return 1.0
        return 4.0 if self.p is None else 1 / (self.p * (1 - self.p))

    def extra_repr(self) -> str:
        return f"margin={self.margin}, imratio={self.p}, version={self.version!r}"


class DualSampler(torch.utils.data.Sampler[int]):
    """Indices of batches that have samples of both classes, as LibAUC's DualSampler, on every rank: each has the same dataset, and
    all ranks together draw what one would for a batch of all of them.

        sampler = dear.DualSampler(dataset, batch_size=32, sampling_rate=0.5)
        loader = torch.utils.data.DataLoader(dataset, batch_size=32, sampler=sampler)

    An epoch deals the samples of the more frequent class, relative to its places, out once; those of the other come again,
    in a new order each time.

    dataset: has its labels in `labels`, `targets` or, as a TensorDataset, in its last tensor, where they are not given.
    batch_size: samples of a batch of one rank. num_pos: positive ones of it; by default int(sampling_rate * batch_size), at
        least 1. sampling_rate: 0.5 where neither is given.
    shuffle: whether an epoch has an order of its own, by `random_seed` and its number, which set_epoch() sets.
    rank, num_replicas: of several ranks; by default as `process_group` says, which is taken as dear.auc() does. Then making one
        is a call of every rank, and MismatchError, on each, where they differ. rank=0, num_replicas=1: a rank has data of its own.

    ConfigError for labels that are not 0 (or -1) and 1, a class without samples, and numbers that cannot be.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        labels: Any = None,
        shuffle: bool = True,
        num_pos: Optional[int] = None,
        sampling_rate: Optional[float] = None,
        random_seed: int = 2023,
        *,
        rank: Optional[int] = None,
        num_replicas: Optional[int] = None,
        process_group: ProcessGroup = None,
        timeout: float = 120.0,
    ) -> None:
        if (rank is None) != (num_replicas is None):
            raise _C.ConfigError("DualSampler: rank and num_replicas go together: give both, or none")
        self.batch_size, self.shuffle, self.random_seed, self.epoch = batch_size, shuffle, random_seed, 0
        self._classes: list[Tensor] = []
        self._places: list[int] = []

        def tell() -> dict[str, Any]:
            given = torch.as_tensor(_labels_of(dataset) if labels is None else labels).detach().cpu()
            self._places = _places(batch_size, num_pos, sampling_rate)
            positive, count = _classes(given.reshape(-1), given, "DualSampler")
            _require_one_coding(count["zero"], count["minus"], "DualSampler")
            self._classes = [positive.nonzero().view(-1), (~positive).nonzero().view(-1)]
            for name, indices in zip(("positive", "negative"), self._classes):
                if len(indices) == 0:
                    raise _C.ConfigError(f"DualSampler: the dataset has no {name} sample: give one with both classes")
            # Tells sets of labels apart, not for certain but well.
            digest = int((self._classes[0] * 1000003 % 2147483647).sum())
            shape = {
                "batch_size": batch_size,
                "num_pos": self._places[0],
                "shuffle": shuffle,
                "random_seed": random_seed,
            }
            return {
                **shape,
                "samples": len(positive),
                "positive samples": len(self._classes[0]),
                "their digest": digest,
            }

        if rank is None or num_replicas is None:
            ranks = Ranks(process_group, timeout)
            ranks.agree("the DualSampler", tell)
            rank, num_replicas = ranks.rank, ranks.size
        else:
            tell()
        if not 0 <= rank < num_replicas:
            raise _C.ConfigError(f"DualSampler: rank={rank} of num_replicas={num_replicas}: ranks are counted from 0")
        self.rank, self.num_replicas = rank, num_replicas
        self.num_batches = max(
            1, *(len(one) // (places * num_replicas) for one, places in zip(self._classes, self._places))
        )

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.random_seed * 1_000_003 + self.epoch)
        self.epoch += 1
        parts = []
        for indices, places in zip(self._classes, self._places):
            wanted = self.num_batches * self.num_replicas * places
            drawn = [self._order(indices, generator) for _ in range(-(-wanted // len(indices)))]
            parts.append(torch.cat(drawn)[:wanted].view(self.num_batches, self.num_replicas, places)[:, self.rank])
        return iter(torch.cat(parts, dim=1).view(-1).tolist())

    def _order(self, indices: Tensor, generator: torch.Generator) -> Tensor:
        return indices[torch.randperm(len(indices), generator=generator)] if self.shuffle else indices

    def __len__(self) -> int:
        return self.num_batches * self.batch_size

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is that of this epoch; those that follow count on."""
        self.epoch = epoch


def _places(batch_size: int, num_pos: Optional[int], sampling_rate: Optional[float]) -> list[int]:
    """How many of a batch are positive, and how many negative."""
    if num_pos is not None and sampling_rate is not None:
        raise _C.ConfigError("DualSampler: num_pos and sampling_rate say the same: give one of them")
    if batch_size < 2:
        raise _C.ConfigError(f"DualSampler: batch_size={batch_size} has no room for both classes: give at least 2")
    if sampling_rate is not None and not 0 < sampling_rate < 1:
        raise _C.ConfigError(f"DualSampler: sampling_rate={sampling_rate}: give a share above 0 and below 1")
    positive = (
        max(1, int((0.5 if sampling_rate is None else sampling_rate) * batch_size)) if num_pos is None else num_pos
    )
    if not 0 < positive < batch_size:
        raise _C.ConfigError(f"DualSampler: num_pos={positive} of batch_size={batch_size}: leave room for both classes")
    return [positive, batch_size - positive]


def _labels_of(dataset: Any) -> Any:
    for name in ("labels", "targets"):
        if getattr(dataset, name, None) is not None:
            return getattr(dataset, name)
    tensors: Sequence[Any] = getattr(dataset, "tensors", ())
    if not tensors:
        raise _C.ConfigError(f"DualSampler: a {type(dataset).__name__} does not tell its labels: give labels=")
    return tensors[-1]


def _classes(scores: Tensor, labels: Tensor, of: str) -> tuple[Tensor, dict[str, int]]:
    """Which samples are positive, and how many labels are 1, 0 and -1."""
    if labels.numel() != len(scores):
        raise _C.ConfigError(f"{of}: {len(scores)} scores and {labels.numel()} labels: give one of each for a sample")
    labels = labels.reshape(-1).to(scores.device)
    positive = labels == 1
    counts = torch.stack([positive.sum(), (labels == 0).sum(), (labels == -1).sum()]).tolist()
    if sum(counts) != len(labels):
        raise _C.ConfigError(
            f"{of}: {len(labels) - sum(counts)} of {len(labels)} labels are none of 1, 0 and -1: give two classes"
        )
    return positive, dict(zip(("positive", "zero", "minus"), counts))


def _require_one_coding(zeros: int, minuses: int, of: str) -> None:
    if zeros and minuses:
        raise _C.ConfigError(f"{of}: {zeros} labels are 0 and {minuses} are -1: the negative class has one of them")
