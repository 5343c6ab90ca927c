"""What a program does to gradients between backward and step(): clipping, and what a GradScaler does.

Gradients are whole on no rank there, so that functions of PyTorch which go over them rank by rank would compute something
else on each. Here they go to the engine; those that cannot are refused.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.utils import clip_grad
from torch.optim import Optimizer

from . import _C

# What a GradScaler leaves on an optimiser for the time of its step.
SCALING = ("grad_scale", "found_inf")

# The optimisers that train on several ranks.
_trained: weakref.WeakSet[Optimizer] = weakref.WeakSet()

_installed = False


class Changes:
    """The methods of an optimiser that trains with a DataParallel which look at whole gradients, or change them."""

    # The contract of torch.amp.GradScaler for optimisers that unscale gradients, and skip steps, by themselves.
    _step_supports_amp_scaling = True

    param_groups: list[dict[str, Any]]

    def _dear_training(self) -> Any:
        raise NotImplementedError

    def _dear_on_streams(self) -> bool:
        raise NotImplementedError

    def clip_grad_norm_(
        self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
    ) -> torch.Tensor:
        """torch.nn.utils.clip_grad_norm_() over the parameters of all groups: after the last backward of a step, before
        step(), on every rank. Returns the norm before it, as fp64, the same on every rank; on a GPU it lies there, and the
        host waits for it only with error_if_nonfinite.

        ConfigError for a max_norm that is negative or NaN, and for a norm_type that is not above 0; with
        error_if_nonfinite, on every rank, for a norm that is not finite: zero_grad() then gives the step up. ConfigError
        under policy dear-eager, and with compression.
        """
        experts = self._dear()._experts  # type: ignore[attr-defined]
        if experts:
            norm = experts.clip_by_norm(self._dear_training(), float(max_norm), float(norm_type), error_if_nonfinite)
            return torch.tensor(norm, dtype=torch.float64)
        if self._dear_on_streams() and not error_if_nonfinite:
            return self._dear_training().clip_gradients(float(max_norm), float(norm_type))
        norm = self._dear_training().clip_gradients_by_norm(float(max_norm), float(norm_type), error_if_nonfinite)
        return torch.tensor(norm, dtype=torch.float64)

    def clip_grad_value_(self, clip_value: float) -> None:
        """torch.nn.utils.clip_grad_value_() over the parameters of all groups, at the same place. ConfigError for a
        clip_value that is negative or NaN."""
        self._dear_training().clip_gradients_by_value(float(clip_value))
        self._dear()._experts.clamp(float(clip_value))  # type: ignore[attr-defined]

    def reduce_gradients(self) -> None:
        """Makes `.grad` of every parameter the mean over all ranks, whole on every rank, at the same place: to be read, or
        changed in place where every rank makes the same of it. step() applies what is there then. ConfigError under policy
        dear-eager, and with compression."""
        self._dear_training().reduce_gradients()

    @contextlib.contextmanager
    def _without_scaling(self) -> Iterator[tuple[torch.Tensor | None, torch.Tensor | None]]:
        """By what the gradients are still to be divided, and whether a GradScaler has found one that is not finite.
        Meanwhile the implementations of PyTorch do not see it: they would divide once more."""
        scaling = {name: self.__dict__.pop(name) for name in SCALING if name in self.__dict__}
        try:
            yield scaling.get("grad_scale"), scaling.get("found_inf")
        finally:
            self.__dict__.update(scaling)


def take_step(training: Any, scale: torch.Tensor | None, found: torch.Tensor | None, on_streams: bool) -> bool:
    """The step of a loss that was multiplied by `scale`, unless something was `found` that is not finite: then it returns
    False. On streams neither is read here."""
    if on_streams and found is not None:
        inverse = None if scale is None else torch.as_tensor(scale).double().reciprocal().float()
        training.step_unless(found, inverse)
    elif found is not None and float(found) > 0:
        training.discard_step()
        return False
    elif scale is not None and float(scale) != 1:
        training.step_scaled(float(scale))
    else:
        training.step()
    return True


def install(optimizer: Optimizer) -> None:
    """Makes PyTorch's own functions know the optimiser, from the first one that trains on several ranks on."""
    global _installed
    _trained.add(optimizer)
    if _installed:
        return
    _installed = True
    scaler: Any = torch.amp.GradScaler
    scaler._unscale_grads_ = _unscaling(scaler._unscale_grads_)
    # clip_grad_norm_() calls this one by its name in the module, however it was itself imported.
    setattr(clip_grad, "_clip_grads_with_norm_", _refusing(clip_grad._clip_grads_with_norm_, "clip_grad_norm_"))
    for module in (clip_grad, torch.nn.utils):
        for name in ("clip_grads_with_norm_", "clip_grad_value_"):
            if hasattr(module, name):
                setattr(module, name, _refusing(getattr(module, name), name.replace("grads_with", "grad")))


def forget(optimizer: Optimizer) -> None:
    _trained.discard(optimizer)


def _unscaling(original: Any) -> Any:
    """GradScaler._unscale_grads_() for an optimiser of ours: of what the ranks found, every rank learns, so that the scale
    stays the same on all."""

    @functools.wraps(original)
    def unscale(self: Any, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> Any:
        if optimizer not in _trained:
            return original(self, optimizer, inv_scale, found_inf, allow_fp16)
        if optimizer._dear()._turns.count > 1:
            raise _C.ConfigError(
                "a GradScaler divides the gradients of one optimiser at a time, and those of several optimisers of one "
                "DataParallel are one: give one optimiser, with parameter groups, or train without a GradScaler"
            )
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if not allow_fp16 and any(parameter.dtype == torch.float16 for parameter in parameters):
            raise ValueError("Attempting to unscale FP16 gradients.")
        training = optimizer._dear_training()
        experts = optimizer._dear()._experts
        if optimizer._dear_on_streams():
            experts.refuse("a GradScaler does not see them on a GPU", "train in bfloat16, which needs no scaling")
            # With allow_fp16 the scaler only looks: the step divides.
            nonfinite = training.unscale_gradients_by(None if allow_fp16 else inv_scale)
            return {found_inf.device: found_inf.copy_(nonfinite)}
        finite = training.unscale_gradients(1 / float(inv_scale))
        if experts:
            finite = experts.unscale(float(inv_scale)) and finite
        return {found_inf.device: found_inf.fill_(0.0 if finite else 1.0)}

    return unscale


def _refusing(original: Any, ours: str) -> Any:
    @functools.wraps(original)
    def refuse(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        given = {id(parameter) for parameter in parameters}
        for optimizer in list(_trained):
            if optimizer._dear() is None:
                continue
            if all(id(parameter) not in given for group in optimizer.param_groups for parameter in group["params"]):
                continue
            source = optimizer._dear_source()
            optimizer._dear()._experts.refuse(
                "a function that goes over the parameters of one rank counts those of no other",
                f"call optimizer.{ours}()",
            )
            if not source.of_program:
                raise _C.ConfigError(
                    "gradients are whole on no rank between backward() and step(), so a function that goes over them rank "
                    f"by rank cannot clip them: call optimizer.{ours}() of the optimiser that dear.distribute() returned"
                )
            if not source.stepping:
                optimizer.reduce_gradients()
        return original(parameters, *args, **kwargs)

    return refuse
