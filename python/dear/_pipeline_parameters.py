"""Who has which parameters and buffers of a pipeline: their values at the start, ties, states and norms."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from . import _C
from ._moe_ranks import gathered
from ._pipeline_gradients import Tied
from ._pipeline_stages import Stage


class Parameters:
    """Of a model that is whole on every rank when this is made; release() keeps those of this rank's stages. All methods
    but load() are called by all ranks together.

    A place has `replicas` ranks in a row, which hold the same."""

    def __init__(self, model: nn.Module, stages: list[Stage], group: Any, replicas: int) -> None:
        self._model, self.group, self._replicas = model, group, replicas
        self._rank = 0 if group is None else dist.get_rank(group)
        self._place = self._rank // replicas
        # By parameter or buffer: places.
        self.holders: dict[Tensor, list[int]] = {}
        for stage in stages:
            for operator in stage.operators:
                for tensor in (*operator.parameters, *operator.buffers):
                    places = self.holders.setdefault(tensor, [])
                    if stage.rank // replicas not in places:
                        places.append(stage.rank // replicas)
        named = [*model.named_parameters(), *model.named_buffers()]
        for _, tensor in named:
            self.holders.setdefault(tensor, [0])  # what no operator reads
        self._names = {tensor: name for name, tensor in named}
        self.own = {name: tensor for name, tensor in named if self._place in self.holders[tensor]}
        # Of the state: by key the tensor it has at the start, whose first place and shape stay.
        self._state: dict[str, tuple[int, torch.Size, torch.dtype, str]] = {}
        for key, value in model.state_dict(keep_vars=True).items():
            if not isinstance(value, Tensor) or value not in self._names:
                raise _C.ConfigError(
                    f"'{key}' of the model's state is no parameter or buffer: take what gives it (get_extra_state or a hook) "
                    "out of a model that is trained in a pipeline"
                )
            self._state[key] = (min(self.holders[value]), value.shape, value.dtype, self._names[value])

    def tied(self) -> list[Tied]:
        """Those that this rank and others hold."""
        replica = self._rank % self._replicas
        several = [
            (tensor, sorted(places))
            for tensor, places in self.holders.items()
            if isinstance(tensor, nn.Parameter) and tensor.requires_grad and len(places) > 1
        ]
        return [
            Tied(number, self._names[tensor], tensor, [place * self._replicas + replica for place in places])
            for number, (tensor, places) in enumerate(several)
            if self._place in places
        ]

    # ---- at the start

    def make_as_on_first_rank(self) -> None:
        """Sends from rank 0 what is not there as rank 0 has it."""
        if self.group is None:
            return
        digests = {tensor: _digest(tensor) for tensor in self._names}
        mine = {name: digests[tensor] for tensor, name in self._names.items()}
        everyone = gathered(mine, self.group)
        by_name = {name: tensor for tensor, name in self._names.items()}
        for rank, theirs in enumerate(everyone):
            for name, tensor in by_name.items():
                if rank // self._replicas in self.holders[tensor] and theirs[name] != everyone[0][name]:
                    self._hand_over(tensor, rank)

    def _hand_over(self, tensor: Tensor, rank: int) -> None:
        if self._rank == 0:
            dist.send(tensor.detach().cpu().contiguous(), group=self.group, group_dst=rank)
        elif self._rank == rank:
            room = torch.empty(tensor.shape, dtype=tensor.dtype)
            dist.recv(room, group=self.group, group_src=0)
            with torch.no_grad():
                tensor.copy_(room)

    def first_ranks(self) -> dict[Tensor, int]:
        return {tensor: min(places) * self._replicas for tensor, places in self.holders.items()}

    def release(self) -> None:
        """Leaves this rank its own; the others are on the device meta from then on."""
        own = set(self.own.values())
        for module in self._model.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None and parameter not in own:
                    away = torch.empty_like(parameter, device="meta")
                    module._parameters[name] = nn.Parameter(away, requires_grad=parameter.requires_grad)
            for name, buffer in module._buffers.items():
                if buffer is not None and buffer not in own:
                    module._buffers[name] = torch.empty_like(buffer, device="meta")
        self.holders = {tensor: places for tensor, places in self.holders.items() if tensor in own}
        self._names = {tensor: name for tensor, name in self._names.items() if tensor in own}

    def clip(self, max_norm: float, norm_type: float) -> Tensor:
        """As torch.nn.utils.clip_grad_norm_(), of the gradients of all stages, each tied one once."""
        own = [tensor for tensor in self.own.values() if tensor.grad is not None]
        counted = [tensor.grad for tensor in own if min(self.holders[tensor]) * self._replicas == self._rank]
        norms = [float(torch.linalg.vector_norm(one.double(), norm_type)) for one in counted]  # type: ignore[union-attr]
        if math.isinf(norm_type):
            total = torch.tensor(max(norms, default=0.0), dtype=torch.float64)
        else:
            total = torch.tensor(sum(norm**norm_type for norm in norms), dtype=torch.float64)
        if self.group is not None:
            operation = dist.ReduceOp.MAX if math.isinf(norm_type) else dist.ReduceOp.SUM
            dist.all_reduce(total, op=operation, group=self.group)
        if not math.isinf(norm_type):
            total = total ** (1 / norm_type)
        scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
        for tensor in own:
            tensor.grad.mul_(scale.to(tensor.grad.dtype).to(tensor.grad.device))  # type: ignore[union-attr]
        return total.to(torch.get_default_dtype())

    def make_buffers_alike(self, replicas: Any) -> None:
        """Those of the first replica, as of batch statistics, become those of all."""
        for tensor in self.own.values() if replicas is not None else ():
            if not isinstance(tensor, nn.Parameter):
                value = tensor.detach().cpu().contiguous()
                dist.broadcast(value, group=replicas, group_src=0)
                tensor.copy_(value)

    # ---- states

    def state(self) -> dict[str, Tensor]:
        """Whole, on every rank, under the model's own names."""
        state: dict[str, Tensor] = {}
        sent: dict[str, Tensor] = {}
        for key, (place, shape, dtype, name) in self._state.items():
            if name not in sent:
                rank = place * self._replicas
                mine = self.own[name].detach() if rank == self._rank else None
                value = torch.empty(shape, dtype=dtype) if mine is None else mine.cpu().clone()
                if self.group is not None:
                    dist.broadcast(value, group=self.group, group_src=rank)
                sent[name] = value
            state[key] = sent[name]
        return state

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Takes this rank's part of a whole state."""
        missing, unknown = (
            [key for key in self._state if key not in state],
            [key for key in state if key not in self._state],
        )
        for keys, what in ((missing, "has no"), (unknown, "has what the model has not:")):
            if keys:
                raise _C.ConfigError(f"the state {what} '{keys[0]}'{_more(keys)}: give a whole state of this model")
        for key, (_, shape, _, _) in self._state.items():
            if tuple(state[key].shape) != tuple(shape):
                raise _C.ConfigError(
                    f"'{key}' of the state has the shape {list(state[key].shape)}, and that of the model {list(shape)}: give "
                    "a state of this model"
                )
        with torch.no_grad():
            for key, (_, _, _, name) in self._state.items():
                if name in self.own:
                    self.own[name].copy_(state[key])


def _digest(tensor: Tensor) -> bytes:
    content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.blake2b(memoryview(content.numpy()), digest_size=16).digest()


def _more(keys: list[str]) -> str:
    return f" and {len(keys) - 1} more" if len(keys) > 1 else ""
