"""DeAR for Hugging Face: an Accelerator for loops of your own, and a Trainer.

    from dear.huggingface import Accelerator            # in the place of accelerate.Accelerator
    from dear.huggingface import Trainer                # in the place of transformers.Trainer

`import dear` alone imports nothing of either. See docs/huggingface.md. ImportError, with what to install, where accelerate is missing;
Trainer needs transformers, too.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any

if importlib.util.find_spec("accelerate") is None:
    raise ImportError("dear.huggingface needs the package accelerate: pip install accelerate==1.15.0")

import accelerate
import torch
from accelerate.optimizer import AcceleratedOptimizer
from torch import nn

import dear
from dear._C import ConfigError
from dear._optimizer import Distributed

__all__ = ["Accelerator", "InTrainer"]  # and Trainer, which is made when it is asked for


class Accelerator(accelerate.Accelerator):
    """accelerate's Accelerator, whose prepare() distributes a model and its optimiser by dear.distribute().

        accelerator = Accelerator(cpu=True, dear_options={"policy": "dear", "fusion": "25MB"})
        model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)

    dear_options: arguments of dear.distribute(). The rest is accelerate's. On one process everything is accelerate's own.
    Clip by clip_grad_norm_() and clip_grad_value_() of this object. Every rank calls save_state(), whose files are those that DDP
    writes. ConfigError for a model that is to train and an optimiser that prepare() does not get together.
    """

    _dear_options: dict[str, Any] = {}

    def __init__(self, *args: Any, dear_options: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self._dear_options = dear_options or {}
        super().__init__(*args, **kwargs)

    # ---- before training

    def prepare(self, *args: Any, device_placement: Any = None) -> Any:
        given = list(args)
        if self.num_processes > 1:
            optimizers = [one for one in given if isinstance(one, torch.optim.Optimizer) and not _is_prepared(one)]
            held: set[int] = set()
            for index, one in enumerate(given):
                if isinstance(one, nn.Module) and not _is_prepared(one):
                    given[index], ids = self._distribute(one, optimizers)
                    held |= ids
            for optimizer in optimizers:
                if id(optimizer) not in held:
                    raise ConfigError(
                        f"the {type(optimizer).__name__} trains no model of this call, and DeAR needs both together: call "
                        "accelerator.prepare(model, optimizer)"
                    )
        return super().prepare(*given, device_placement=device_placement)

    def _distribute(self, model: nn.Module, optimizers: list[Any]) -> tuple[nn.Module, set[int]]:
        # accelerate places the model, and makes its forward pass one of mixed precision; it does not wrap it.
        model = self.prepare_model(model, evaluation_mode=True)
        ids = {id(parameter) for parameter in model.parameters()}
        mine = [one for one in optimizers if any(id(p) in ids for group in one.param_groups for p in group["params"])]
        if not mine:
            if any(parameter.requires_grad for parameter in model.parameters()):
                raise ConfigError(
                    "the model has parameters that need gradients, and DeAR trains it together with its optimiser: call "
                    "accelerator.prepare(model, optimizer), or freeze a model that is only to be evaluated"
                )
            return model, set()
        parallel, _ = dear.distribute(model, mine[0] if len(mine) == 1 else mine, **self._dear_options)
        self._models[next(i for i, one in enumerate(self._models) if one is model)] = parallel
        parallel.__dict__["_is_accelerate_prepared"] = True
        model.__dict__.pop("_is_accelerate_prepared", None)
        return parallel, {id(one) for one in mine}

    def prepare_optimizer(self, optimizer: Any, device_placement: Any = None) -> Any:
        # The state of one that is distributed lies where its shards do.
        return super().prepare_optimizer(optimizer, False if isinstance(optimizer, Distributed) else device_placement)

    # ---- in training

    def _holding(self, parameters: list[Any]) -> list[Any]:
        """The distributed optimisers whose parameters are all among these."""
        given = {id(one) for one in parameters}
        found = []
        for prepared in self._optimizers:
            raw = _raw(prepared)
            if isinstance(raw, Distributed) and all(
                id(p) in given for group in raw.param_groups for p in group["params"]
            ):
                found.append(raw)
        return found

    def clip_grad_norm_(self, parameters: Any, max_norm: float, norm_type: float = 2) -> Any:
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        found = self._holding(parameters)
        if len(found) != 1:
            return super().clip_grad_norm_(parameters, max_norm, norm_type)
        self.unscale_gradients(found[0])
        return found[0].clip_grad_norm_(max_norm, norm_type)

    def clip_grad_value_(self, parameters: Any, clip_value: float) -> None:
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        found = self._holding(parameters)
        if len(found) != 1:
            return super().clip_grad_value_(parameters, clip_value)
        self.unscale_gradients(found[0])
        found[0].clip_grad_value_(clip_value)

    @contextlib.contextmanager
    def join_uneven_inputs(self, joinables: list[Any], even_batches: bool | None = None) -> Iterator[None]:
        models = [one for one in joinables if isinstance(one, dear.DataParallel)]
        with dear.join(*models) if models else super().join_uneven_inputs(joinables, even_batches):
            yield

    # ---- files, and after training

    def get_state_dict(self, model: Any, unwrap: bool = True) -> Any:
        """Copies of the tensors: those of a model lie in buckets together, which writers take for one tensor under several names."""
        state = super().get_state_dict(model, unwrap)
        if not isinstance(model, dear.DataParallel):
            return state
        return {name: one.clone() if torch.is_tensor(one) else one for name, one in state.items()}

    def unwrap_model(self, model: Any, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True) -> Any:
        inner = model.module if isinstance(model, dear.DataParallel) else model
        return super().unwrap_model(inner, keep_fp32_wrapper, keep_torch_compile)

    def free_memory(self, *objects: Any) -> Any:
        """Ends the training of every model, so every rank calls it."""
        for model in self._models:
            if isinstance(model, dear.DataParallel):
                dear.own(model).close()
        return super().free_memory(*objects)


def _raw(optimizer: Any) -> Any:
    while isinstance(optimizer, AcceleratedOptimizer):
        optimizer = optimizer.optimizer
    return optimizer


def _is_prepared(one: Any) -> bool:
    return bool(getattr(one, "_is_accelerate_prepared", False)) or isinstance(one, dear.DataParallel)


class InTrainer:
    """A mixin for transformers.Trainer and what derives from it: `class MyTrainer(InTrainer, SFTTrainer): ...`.

    dear_options: arguments of dear.distribute(). ConfigError for what that refuses.
    """

    def __init__(self, *args: Any, dear_options: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self._dear_options = dear_options or {}
        super().__init__(*args, **kwargs)

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()  # type: ignore[misc]
        me: Any = self
        me.accelerator.__class__ = Accelerator
        me.accelerator._dear_options = self._dear_options

    def _prepare_for_training(self, *args: Any, **kwargs: Any) -> Any:
        # A second train() begins with what the first one had before it was wrapped.
        me: Any = self
        me.model_wrapped = me.model
        if me.optimizer is not None:
            me.optimizer = _raw(me.optimizer)
        return super()._prepare_for_training(*args, **kwargs)  # type: ignore[misc]

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        # Rank 0 writes the state, which all ranks gather.
        me: Any = self
        optimizer = me.optimizer
        if optimizer is not None and isinstance(_raw(optimizer), Distributed):
            me.optimizer = _Gathered(optimizer.state_dict())
        try:
            super()._save_optimizer_and_scheduler(output_dir)  # type: ignore[misc]
        finally:
            me.optimizer = optimizer

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        # Without clipping nobody waits for the norm.
        return None if grad_norm is None else super()._get_grad_norm(model, grad_norm)  # type: ignore[misc]


class _Gathered:
    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state

    def state_dict(self) -> dict[str, Any]:
        return self._state


def __getattr__(name: str) -> Any:
    """Trainer is made when it is asked for, so that loops with an Accelerator alone need no transformers."""
    if name != "Trainer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if importlib.util.find_spec("transformers") is None:
        raise ImportError("dear.huggingface.Trainer needs the package transformers: pip install transformers==5.24.0")
    import transformers

    made = type("Trainer", (InTrainer, transformers.Trainer), {"__doc__": InTrainer.__doc__, "__module__": __name__})
    globals()["Trainer"] = made
    return made
