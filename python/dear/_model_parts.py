"""dear.distribute_parts(): one model, of which several optimisers train a part each, and step when they like."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from . import _C
from ._distribute import DataParallel, distribute
from ._moe import MoE
from ._process_group import ProcessGroup, group_of


class Parts(Sequence[DataParallel]):
    """The parts of one model, a DataParallel for each optimiser, in their order. It calls each of them in turn: every rank makes
    the same calls in the same order."""

    def __init__(self, parts: list[DataParallel]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: Any) -> Any:
        return self._parts[index]

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """DataParallel.no_sync() of all parts."""
        with contextlib.ExitStack() as stack:
            for part in self._parts:
                stack.enter_context(part.no_sync())
            yield

    def synchronize(self) -> None:
        """DataParallel.synchronize() of all parts: parameters are whole, and buffers rank 0's."""
        for part in self._parts:
            part.synchronize()

    def discard_step(self) -> None:
        """DataParallel.discard_step() of all parts: drops all gradients."""
        for part in self._parts:
            part.discard_step()

    def close(self) -> None:
        """DataParallel.close() of all parts."""
        for part in self._parts:
            part.close()

    def abandon(self, reason: str = "its program gave the training up") -> None:
        """DataParallel.abandon() of all parts."""
        for part in self._parts:
            part.abandon(reason)


def distribute_parts(
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    *,
    process_group: ProcessGroup = None,
    timeout: float = 120.0,
    **options: Any,
) -> tuple[Parts, list[Optimizer]]:
    """Trains one model on all ranks with several optimisers, each of its own parameters and each with iterations of its own: a GAN
    in one module, or phases that take turns. (Optimisers that step together, once an iteration, go to distribute() as a list.)

        parts, (for_generator, for_discriminator) = dear.distribute_parts(model, [for_generator, for_discriminator])

    The model itself is used as before. An optimiser's iteration is from its step() to its next: backward passes whose
    gradients another optimiser's zero_grad() or next step drops are no part of it. Passes that only accumulate are within
    parts.no_sync(). Buffers, and parameters that nothing trains, begin as rank 0's, and belong to the first part.

    process_group, timeout and options: those of distribute(), for all parts. Every rank calls it alike.

    ConfigError, before anything is sent, for a parameter that needs a gradient and that no optimiser or several hold, and for a model
    with dear.MoE layers.
    """
    if not isinstance(model, nn.Module):
        raise _C.ConfigError(f"the model is a {type(model).__name__}: pass a torch.nn.Module")
    if any(isinstance(module, MoE) for module in model.modules()):
        raise _C.ConfigError(
            "a model with dear.MoE layers is trained whole: give distribute() its optimisers in a list"
        )
    trees = [nn.Module() for _ in optimizers]
    if not trees:
        raise _C.ConfigError("there is no optimiser: give one for each part of the model")
    holders = [
        {id(parameter) for group in optimizer.param_groups for parameter in group["params"]} for optimizer in optimizers
    ]
    for name, parameter in model.named_parameters():
        found = [index for index, held in enumerate(holders) if id(parameter) in held]
        if len(found) > 1:
            raise _C.ConfigError(
                f"parameter '{name}' is in optimisers {found[0]} and {found[1]}: give each parameter to one of them"
            )
        if not found and parameter.requires_grad:
            raise _C.ConfigError(
                f"parameter '{name}' needs a gradient, and no optimiser holds it: give it to one, or freeze it"
            )
        _place(trees[found[0] if found else 0], name, parameter)
    for name, buffer in model.named_buffers():
        _place(trees[0], name, buffer)
    group = group_of(process_group, timeout)
    parts = [
        distribute(tree, optimizer, process_group=group, timeout=timeout, **options)[0]
        for tree, optimizer in zip(trees, optimizers)
    ]
    return Parts(parts), list(optimizers)


def _place(tree: nn.Module, name: str, tensor: torch.Tensor) -> None:
    """Under the same name as in the model, which is what sentences of errors say."""
    *path, last = name.split(".")
    for step in path:
        if step not in tree._modules:
            tree.add_module(step, nn.Module())
        tree = tree._modules[step]  # type: ignore[assignment]
    if isinstance(tensor, nn.Parameter):
        tree.register_parameter(last, tensor)
    else:
        tree.register_buffer(last, tensor)
