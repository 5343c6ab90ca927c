"""What a DataParallel tells of gradients that travel compressed, and keeps of them."""

from __future__ import annotations

from typing import Any

from torch import nn

from . import _C


class Compressed:
    """The methods of a DataParallel that are of compression."""

    module: nn.Module
    _training: Any

    def compression_report(self) -> dict[str, Any]:
        """What compression has done on this rank: steps; bytes sent, where collectives send no more than they must, and
        dense_bytes, what dense gradients would have been; residual_norm, of what error feedback holds; dense_exchanges,
        of buckets that a sketch could not carry; not_finite, steps of a bucket whose mean came out with NaN or infinity;
        not_finite_rank, whose gradients a sketch last met them in (-1: none). Between a step and the next backward."""
        return self._training.compression_report()

    def compression_state_dict(self) -> dict[str, Any]:
        """What compression remembers on this rank: the step, and for each parameter by name its residual, momentum and
        codec (fp32 tensors, empty where there is nothing). Each rank saves its own; once each has loaded its own, training
        goes on bit for bit. ScheduleError before the first step, and without compression."""
        names = {id(parameter): name for name, parameter in self.module.named_parameters()}
        step, states = self._training.compression_states()
        return {
            "step": step,
            "parameters": {
                names[id(parameter)]: {"residual": residual, "momentum": momentum, "codec": codec}
                for parameter, residual, momentum, codec in states
            },
        }

    def load_compression_state_dict(self, state: dict[str, Any]) -> None:
        """Replaces it, after the first step and before the next backward. ConfigError for the state of another model or
        compression."""
        self._training.load_compression_states(*self._stored_compression(state))

    def _stored_compression(self, state: dict[str, Any]) -> tuple[int, list[Any]]:
        parameters = dict(self.module.named_parameters())
        unknown = [name for name in state["parameters"] if name not in parameters]
        if unknown:
            raise _C.ConfigError(f"the state of a compression names '{unknown[0]}', which the model does not have")
        return state["step"], [
            (parameters[name], one["residual"], one["momentum"], one["codec"])
            for name, one in state["parameters"].items()
        ]
