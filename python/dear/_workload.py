"""The job of a simulation or a plan, as a value."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

from . import _C, _html


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One parameter that is trained."""

    name: str
    elements: int
    dtype: str = "fp32"
    """"fp32", "fp16" or "bf16", of the parameter and of its gradient."""


@dataclasses.dataclass(frozen=True)
class Layer:
    """A module with parameters of its own, and the time that it takes on one rank."""

    name: str
    tensors: tuple[int, ...]
    """Indices into Workload.tensors of what its forward reads; a tied tensor stands in several layers."""
    forward_seconds: float
    backward_seconds: float
    activation_bytes: int = 0
    """What its forward keeps for its backward, on one rank; 0: not known."""


@dataclasses.dataclass(frozen=True)
class Workload:
    """Layers, tensors and times of one training job on one rank.

    Layers stand in the order of the forward pass, tensors in the order in which layers first use them. The file that
    `load` reads and `save` writes is the one of `dear train --profile` (docs/formats.md).
    """

    name: str
    tensors: tuple[Tensor, ...]
    layers: tuple[Layer, ...]
    update_seconds: float = 0.0
    """The optimiser's time to update every parameter on one rank."""
    buffer_bytes: int = 0
    """The size of state that is not trained and that replicas keep alike, such as running means."""
    buffers: int = 0
    """The number of tensors that this state is; 0: not known."""
    device: str = ""
    """The device whose times these are: "a100" as `dear models` lists it, or "cpu, 4 threads"; "": not known."""

    @property
    def bytes(self) -> int:
        """The bytes of all tensors, each once."""
        return self._value().bytes

    @property
    def forward_seconds(self) -> float:
        return sum(layer.forward_seconds for layer in self.layers)

    @property
    def backward_seconds(self) -> float:
        return sum(layer.backward_seconds for layer in self.layers)

    @classmethod
    def of_model(
        cls,
        model: str,
        *,
        device: str = "",
        batch: int = 0,
        size: int = 0,
        dtype: str = "",
        optimizer_states: int = 2,
        checkpoint_activations: bool = False,
        scale_compute: float | None = None,
    ) -> Workload:
        """The job of a model by its name (`dear.models()`), its times by the roofline of a device.

        The options are those of `dear.simulate`. ConfigError for a name that there is not.
        """
        options = _C.ModelOptions(
            device=device,
            batch=batch,
            size=size,
            dtype=dtype,
            optimizer_states=optimizer_states,
            checkpoint_activations=checkpoint_activations,
            scale_compute=scale_compute,
        )
        return cls._of_value(_C.find_workload(model, options))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Workload:
        """Reads a workload file. ConfigError names the file where it cannot be read or is no regular file, and the field
        that is wrong."""
        return cls._of_value(_C.Workload.load(os.fspath(path)))

    @classmethod
    def from_json(cls, text: str, *, source: str = "the workload") -> Workload:
        """The workload of the text of a file. ConfigError names `source` and the field that is wrong."""
        return cls._of_value(_C.Workload.from_json(text, source))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Workload:
        """The workload of the fields of a file, as `DataParallel.profile()` and `to_dict` give them."""
        return cls.from_json(json.dumps(fields))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a workload file. ConfigError for a workload that cannot be."""
        _C.write_file(os.fspath(path), self.to_json())

    def to_json(self) -> str:
        """The text of a workload file. ConfigError for a workload that cannot be."""
        return self._value().to_json()

    def to_dict(self) -> dict[str, Any]:
        """The fields of a workload file."""
        head = {"format": "dear-workload", "version": 4}
        return head | dataclasses.asdict(self)

    def _value(self) -> _C.Workload:
        return _C.Workload.from_json(json.dumps(self.to_dict()), f"workload '{self.name}'")

    @classmethod
    def _of_value(cls, value: _C.Workload) -> Workload:
        fields = json.loads(value.to_json())
        layers = [layer | {"tensors": tuple(layer["tensors"])} for layer in fields["layers"]]
        return cls(
            name=fields["name"],
            tensors=tuple(Tensor(**tensor) for tensor in fields["tensors"]),
            layers=tuple(Layer(**layer) for layer in layers),
            update_seconds=fields["update_seconds"],
            buffer_bytes=fields.get("buffer_bytes", 0),
            buffers=fields.get("buffers", 0),
            device=fields.get("device", ""),
        )

    def _repr_html_(self) -> str:
        rows = [
            (
                layer.name,
                len(layer.tensors),
                _C.format_seconds(layer.forward_seconds),
                _C.format_seconds(layer.backward_seconds),
            )
            for layer in self.layers
        ]
        caption = (
            f"{self.name}: {len(self.layers)} layers, {_C.format_bytes(self.bytes)} of parameters, forward "
            f"{_C.format_seconds(self.forward_seconds)}, backward {_C.format_seconds(self.backward_seconds)}"
        )
        return _html.table(("layer", "tensors", "forward", "backward"), rows, left=1, caption=caption)
