"""Batches that are shared among ranks in proportion to their speeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import Any

import torch

from . import _C
from ._C import ConfigError

Balance = str | Sequence[float] | None


def weights_of(balance: Balance) -> tuple[bool, list[float]]:
    """Whether shares are balanced, and by which weights: none where speeds are measured."""
    if balance is None:
        return False, []
    if isinstance(balance, str):
        if balance != "measured":
            raise ConfigError(f'balance="{balance}": there are "measured", and a list of one weight for each rank')
        return True, []
    weights = [float(weight) for weight in balance]
    if not weights:
        raise ConfigError('an empty list as balance: give a weight for each rank, or "measured"')
    return True, weights


def shards_of(shards: str | Sequence[float]) -> list[float]:
    """The weights of shards to begin with: none where they are measured."""
    if isinstance(shards, str):
        if shards != "measured":
            raise ConfigError(f'shards="{shards}": there are "measured", and a list of one weight for each rank')
        return []
    return [float(weight) for weight in shards]


def _leading(value: Any) -> int | None:
    """The first dimension of the first tensor."""
    if isinstance(value, torch.Tensor):
        return value.shape[0] if value.ndim > 0 else None
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        for one in value:
            if (found := _leading(one)) is not None:
                return found
    return None


class Balanced:
    """The methods of a DataParallel that are of balanced batches."""

    _training: Any
    _group: Any
    _said: dict[str, Any]

    def batch_share(self, rank: int | None = None, batch: int | None = None) -> float | int:
        """With `balance`: the fraction of the next batch of all ranks that `rank` (this one) is to take; with `batch`, the
        number of samples in that batch, so many of `batch` samples. The same on every rank at the same step."""
        rank = self._group.rank if rank is None else rank
        if not 0 <= rank < self._group.size:
            raise ConfigError(f"there is no rank {rank}: ranks are 0 to {self._group.size - 1}")
        training = self._training
        if batch is None:
            return training.batch_fractions()[rank]
        return training.batch_counts(batch, training.batch_steps())[rank]

    def _count_samples(self, inputs: Any) -> None:
        """Says how many samples a step has, as its first forward pass shows, where the program has not said it."""
        if not torch.is_grad_enabled() or not self._said["balanced"]:
            return
        step = self._training.batch_steps()
        said, told = self._said["step"] == step, self._said["told"]
        if said and told:
            return
        count = _leading(inputs)
        if count is None:
            raise ConfigError(
                f"rank {self._group.rank}: no argument of the forward pass is a tensor with samples along its first dimension: "
                "call model.samples(n) before the first backward of each step"
            )
        if not said:
            self._training.samples(count)
            self._said.update(step=step, told=False, count=count)
        elif count != self._said["count"]:
            raise ConfigError(
                f"rank {self._group.rank}: forward passes of one step have {self._said['count']} and {count} samples: call "
                "model.samples(n) before its first backward, with the number over which its gradients are a mean"
            )

    def _tell_samples(self) -> None:
        """The program itself says them in this step."""
        if self._said["balanced"]:
            self._said.update(step=self._training.batch_steps(), told=True)


class BalancedSampler(torch.utils.data.Sampler[list[int]]):
    """This rank's batches of a data set, as the shares of a balanced model have them: a batch sampler.

        model, optimizer = dear.distribute(model, optimizer, balance="measured")
        sampler = dear.BalancedSampler(dataset, model, batch_size=64)
        loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler)

    The batches of all ranks have `batch_size` samples together; every sample is in one batch of one rank in each epoch. All
    ranks have equally many batches, none without a sample: a last batch with fewer samples than ranks is added to the one
    before. Every rank makes it alike, and begins an epoch after the same step.

    dataset: the data set, or its length.
    batch_size: samples of all ranks together, at least one for each.
    shuffle: another order in each epoch, by `seed` and set_epoch().
    drop_last: leaves out samples that are no whole batch.
    batches_per_step: as many batches accumulate in a step.

    With measured shares a loader may read as many batches ahead as shares are decided ahead (8 steps); ConfigError when it
    reads further.
    """

    def __init__(
        self,
        dataset: Sized | int,
        model: Any,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        batches_per_step: int = 1,
    ) -> None:
        self._length = dataset if isinstance(dataset, int) else len(dataset)
        self._model, self._batch = model, batch_size
        self._shuffle, self._seed, self._epoch = shuffle, seed, 0
        self._drop_last, self._per_step = drop_last, batches_per_step
        ranks = model._group.size
        model._training.batch_fractions()
        if batch_size < ranks or batches_per_step < 1:
            raise ConfigError(
                f"batches of {batch_size} samples for {ranks} ranks, {batches_per_step} in a step: give at least a sample for each "
                "rank, and a batch"
            )
        if self._length < ranks:
            raise ConfigError(f"a data set of {self._length} samples for {ranks} ranks: every rank needs one")

    def set_epoch(self, epoch: int) -> None:
        """The order of the next epochs is that of this number."""
        self._epoch = epoch

    def _ends(self) -> list[int]:
        """Where each batch of all ranks ends."""
        ends = list(range(self._batch, self._length + 1, self._batch))
        left = self._length - (ends[-1] if ends else 0)
        if left > 0 and not self._drop_last:
            if left < self._model._group.size and ends:
                ends[-1] = self._length
            else:
                ends.append(self._length)
        return ends

    def __len__(self) -> int:
        return len(self._ends())

    def __iter__(self) -> Iterator[list[int]]:
        training, rank = self._model._training, self._model._group.rank
        first = training.batch_steps()
        order = torch.arange(self._length)
        if self._shuffle:
            order = torch.randperm(self._length, generator=torch.Generator().manual_seed(self._seed + self._epoch))
        begin = 0
        for number, end in enumerate(self._ends()):
            counts = training.batch_counts(end - begin, first + number // self._per_step)
            mine = begin + sum(counts[:rank])
            yield order[mine : mine + counts[rank]].tolist()
            begin = end


class ShardWeights(list[float]):
    """Weights of shards, and the foreseen `gain`: how many times as long reductions, updates and gathers take with equal
    shards, where nothing hides them."""

    gain: float = 1.0


def shard_weights(
    send: Sequence[float],
    receive: Sequence[float] | None = None,
    update: Sequence[float] | None = None,
    policy: str = "dear",
) -> ShardWeights:
    """The weights of shards, for distribute(shards=...), that end soonest on links and updates that are not equally quick.

        weights = dear.shard_weights(send=[300e6, 300e6, 100e6], policy="wfbp")

    send, receive: bytes a second of each rank's link, each way (`receive` is `send` by default).
    update: bytes of parameters a second that each rank's optimiser updates; no time where None.
    policy: under "wfbp" and "serial" both directions of a link work together, and a slow link wants a small shard; under others
        reductions and gathers follow each other, and a slow link that is slow both ways wants an equal one.

    ConfigError for speeds that are not above 0, and lists that are not equally long.
    """
    receive = send if receive is None else receive
    update = [float("inf")] * len(send) if update is None else update
    if len(receive) != len(send) or len(update) != len(send):
        raise ConfigError(
            f"speeds of {len(send)}, {len(receive)} and {len(update)} ranks: give one of each for each rank"
        )
    weights, seconds, equal = _C.plan_shards(
        [float(one) for one in send],
        [float(one) for one in receive],
        [float(one) for one in update],
        policy in ("wfbp", "serial"),
    )
    found = ShardWeights(weights)
    found.gain = equal / seconds if seconds > 0 else 1.0
    return found
