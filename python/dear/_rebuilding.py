"""A model that changes while it trains: rebuild(), and a search for parameters that nobody would train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules import module as registrations
from torch.optim import Optimizer

from . import _C, _moe_training, _usable

# How often any module was given a parameter or a module, from the first DataParallel on.
_count = 0
_installed = False


def _registered(*_: Any) -> None:
    global _count
    _count += 1


def _install() -> None:
    global _installed
    if not _installed:
        _installed = True
        registrations.register_module_parameter_registration_hook(_registered)
        registrations.register_module_module_registration_hook(_registered)


class Rebuilding:
    """The methods of a DataParallel whose module changes."""

    module: nn.Module
    _optimizers: list[Optimizer]
    _training: Any

    def rebuild(self) -> None:
        """After a change of the module (layers came, went or were replaced), with what is new given to the optimiser
        by add_param_group(): trains what is there now. Every rank calls it after the same step, before the next
        backward pass.

            model.head = nn.Linear(64, 20)
            optimizer.add_param_group({"params": model.head.parameters()})
            model.rebuild()

        Parameters and buffers become rank 0's; what the optimiser remembers stays with the parameters that stay. No
        call is needed when parameters are frozen, unfrozen (requires_grad_()) or added to the optimiser.
        ConfigError on every rank, and nothing has changed, for a parameter that the optimiser does not hold;
        MismatchError when the ranks' models differ.
        """
        training = self._training
        _usable.require_plain_parameters(self.module)
        before = self.__dict__["_experts"]
        experts = _moe_training.Experts(self.module, self._optimizers, self.__dict__["_group"])
        if experts.ids != before.ids:
            raise _C.ConfigError(
                "experts of dear.MoE layers stay while a model trains: close() it, and distribute() anew"
            )
        training.rebuild(*tensors_of(self.module, experts.ids))
        gone = {id(p): p for p in (*self.__dict__["_gone"], *self.__dict__["_known"])}
        self._note_model()
        for parameter in self.__dict__["_known"]:
            gone.pop(id(parameter), None)
        self.__dict__["_gone"] = list(gone.values())

    def __setitem__(self, index: Any, layer: Any) -> None:
        self.module[index] = layer  # type: ignore[index]

    def __delitem__(self, index: Any) -> None:
        del self.module[index]  # type: ignore[attr-defined]

    def _note_model(self) -> None:
        _install()
        known = list(self.module.parameters())
        self.__dict__.update(_known=known, _noted=_count, _gone=self.__dict__.get("_gone", []))

    def _require_same_model(self) -> None:
        """ConfigError for a parameter that was given to the module since, and that nobody trains."""
        if self.__dict__["_noted"] == _count:
            return
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        held = {id(parameter) for group in groups for parameter in group["params"]}
        trained = held - {id(parameter) for parameter in self.__dict__["_gone"]}
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad and parameter.numel() > 0 and id(parameter) not in trained:
                raise _C.ConfigError(
                    f"parameter '{name}' of the model is not trained, because it was replaced or added later: "
                    f"give it to the optimiser by add_param_group(), and call rebuild() on every rank"
                )
        self.__dict__["_noted"] = _count


def tensors_of(
    module: nn.Module, apart: frozenset[int] = frozenset()
) -> tuple[list[tuple[str, Any]], Callable[[], list[tuple[str, Any]]]]:
    """The parameters of the module but for those `apart`, by id, and what returns its buffers as they are then, as the engine takes them."""
    named = module.named_parameters(remove_duplicate=False)
    return [(name, one) for name, one in named if id(one) not in apart], lambda: list(module.named_buffers())
