"""Uneven inputs: dear.join(), and DataParallel.join() and samples()."""

from __future__ import annotations

import functools
import types
from typing import Any

import torch

from . import _C
from ._batch_norm import SyncBatchNorm


class Join:
    """What `with dear.join(...)` and `with model.join()` give."""

    def __init__(self, models: tuple[Any, ...], ranks_with_data: bool, enable: bool, error: bool) -> None:
        self._models = models
        self._options = {"ranks_with_data": ranks_with_data, "error": error}
        self._enable = enable
        self._join: Any = None
        self._hooks: list[Any] = []

    def __enter__(self) -> Join:
        if self._enable:
            for model in self._models:
                model._experts.refuse(
                    "every rank takes part in each of their passes", "give ranks equally many batches"
                )
            normalised = [number for number, model in enumerate(self._models) if self._is_normalised(model)]
            self._join = _C.Join([model._training for model in self._models], **self._options)
            for number in normalised:
                begin = functools.partial(self._begin, number)
                self._hooks.append(self._models[number].module.register_forward_pre_hook(begin))
        return self

    def _is_normalised(self, model: Any) -> bool:
        """Whether it has a SyncBatchNorm. The forward of one has collectives of its own, which a rank without data does
        not run: an error on request is thrown before them, and without one nothing could end the join."""
        if model._group.size == 1 or not any(isinstance(one, SyncBatchNorm) for one in model.module.modules()):
            return False
        if not self._options["error"]:
            raise _C.ConfigError(
                f"rank {model._group.rank}: a SyncBatchNorm needs every rank in each forward pass, and one that runs out of data "
                "runs none: pass throw_on_early_termination=True, or give ranks equally many batches"
            )
        return True

    def _begin(self, number: int, module: Any, inputs: Any) -> None:
        if module.training and torch.is_grad_enabled():
            self._join.begin_step(number)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        if self._join is None:
            return
        if error is None:
            self._join.end()
            for model in self._models:
                if model._rounds is not None:
                    model._rounds.end()
        else:
            self._join.abandon(f"it left join() with {type(error).__name__}: {error}")

    @property
    def shadowed(self) -> int:
        """Steps of other ranks that this one took part in without data: so often a scheduler that goes by steps is
        behind."""
        return self._join.shadowed() if self._join is not None else 0


def join(
    *models: Any,
    divide_by_initial_world_size: bool = True,
    enable: bool = True,
    throw_on_early_termination: bool = False,
) -> Join:
    """Training whose ranks have different numbers of batches, as a context that is entered and left on every rank.

        with dear.join(model):
            for samples, labels in batches:
                criterion(model(samples), labels).backward()
                optimizer.step()

    A rank that leaves it takes part in the steps of the others, without data, until all have left: it makes the calls of
    these models that the others make (steps, clipping, steps given up, synchronize(), regroup(), state_dict() of the
    optimiser). Name all models that train in the loop. Parameters, and the options of the optimisers, are the same on all
    ranks afterwards.

    divide_by_initial_world_size: gradients are the mean over all ranks, one without data counting as zero; else over
        those that have data. Both are a mean over ranks: model.samples(n) makes it one over samples. With rounds an exchange
        is always over the replicas that made steps in its round.
    enable: False: the context does nothing.
    throw_on_early_termination: MismatchError, on every rank, at the first step for which a rank has no data. Models with
        SyncBatchNorm need it.

    An exception that leaves the context ends the training of the other ranks, with its text. ConfigError while another
    join is open. As in DistributedDataParallel.join(), but nothing is waited for before step().
    """
    return Join(models, not divide_by_initial_world_size, enable, throw_on_early_termination)


class Joined:
    """The methods of a DataParallel that are of uneven inputs."""

    _training: Any
    _experts: Any
    _tell_samples: Any

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """dear.join() of this model."""
        return join(
            self,
            divide_by_initial_world_size=divide_by_initial_world_size,
            enable=enable,
            throw_on_early_termination=throw_on_early_termination,
        )

    def samples(self, count: int) -> None:
        """The gradients of the next step are a mean over `count` samples on this rank: they are averaged over all samples
        of all ranks, not over ranks. Before the first backward of the step, on every rank or on none (MismatchError). With
        0, for an empty batch, this rank's gradients do not count."""
        self._experts.refuse("their gradients are means over ranks", "give ranks equally many samples")
        self._training.samples(count)
        self._tell_samples()
