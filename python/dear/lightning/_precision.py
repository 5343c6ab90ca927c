"""Precision plugins of Lightning whose clipping and steps are those of an optimiser that DeAR distributes.

Lightning takes an optimiser that unscales by itself for a fused one, which it refuses to clip, and clips gradients rank by rank.
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.utilities import GradClipAlgorithmType
from lightning.pytorch.utilities.model_helpers import is_overridden

from dear._optimizer import Distributed


class Clipping:
    """A mixin: see mix_in()."""

    def clip_gradients(
        self,
        optimizer: Any,
        clip_val: Any = 0.0,
        gradient_clip_algorithm: Any = GradClipAlgorithmType.NORM,
    ) -> None:
        raw = getattr(optimizer, "_optimizer", optimizer)
        if not isinstance(raw, Distributed):
            super().clip_gradients(optimizer, clip_val, gradient_clip_algorithm)  # type: ignore[misc]
        elif clip_val is None or clip_val <= 0:
            return
        elif gradient_clip_algorithm == GradClipAlgorithmType.VALUE:
            raw.clip_grad_value_(clip_val)
        else:
            raw.clip_grad_norm_(clip_val)

    def optimizer_step(self, optimizer: Any, model: Any, closure: Any, **kwargs: Any) -> Any:
        scaler = getattr(self, "scaler", None)
        if scaler is None or not isinstance(optimizer, Distributed):
            return super().optimizer_step(optimizer, model=model, closure=closure, **kwargs)  # type: ignore[misc]
        result = closure()
        if result is None and model.automatic_optimization:  # the training step asked for no backward pass
            self._after_closure(model, optimizer)
            return result
        scaler.unscale_(optimizer)
        self._after_closure(model, optimizer)
        result = scaler.step(optimizer, **kwargs)
        scaler.update()
        return result

    def _after_closure(self, model: Any, optimizer: Any) -> None:
        if isinstance(optimizer, Distributed) and _looks_at_gradients(model):
            optimizer.reduce_gradients()
        super()._after_closure(model, optimizer)  # type: ignore[misc]


def _looks_at_gradients(model: Any) -> bool:
    """Whether somebody is called between backward and step(), who may read gradients, or change them."""
    hook = "on_before_optimizer_step"
    return is_overridden(hook, model) or any(is_overridden(hook, one) for one in model.trainer.callbacks)


def mix_in(plugin: Precision) -> None:
    """Makes the plugin's class a subclass of itself with Clipping. Its name stays, under which a file has its state."""
    cls = type(plugin)
    if not issubclass(cls, Clipping):
        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        plugin.__class__ = type(cls.__name__, (Clipping, cls), names)
