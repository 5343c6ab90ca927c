"""Training by rounds: dear.LocalSGD and dear.DiLoCo, for the argument `rounds` of dear.distribute()."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Optional, TypeVar, Union

import torch
from torch import nn
from torch.optim import LBFGS, Optimizer

from . import _C
from ._failures import reason_of
from ._moe_travel import Travelling

T = TypeVar("T")
MakeOuter = Callable[[list[torch.Tensor]], Optimizer]

# Of the state of rounds among the extra objects of a checkpoint.
EXTRA = "dear.rounds"


def nesterov(parameters: list[torch.Tensor]) -> Optimizer:
    """The outer optimiser of DiLoCo, with the rates that its users take."""
    return torch.optim.SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)


@dataclass(frozen=True)
class DiLoCo:
    """Replicas train apart, and exchange once in `every` steps (DiLoCo: https://doi.org/10.48550/arXiv.2311.08105; in
    fragments, with a delay: https://doi.org/10.48550/arXiv.2501.18512). For links that are too slow for every step.

        model, optimizer = dear.distribute(model, optimizer, rounds=dear.DiLoCo(every=64, fragments=4, delay=2))

    At its turn a fragment of the model sends how far this replica's parameters have come from the global ones; `delay` steps
    later the outer optimiser takes the mean over replicas as the gradient of the global parameters, which then replace the
    replica's own. Between turns nothing is sent. The optimiser of the program, its state and its schedulers go on with each
    replica's own steps; buffers begin as rank 0's, and each replica keeps its own. A step that is given up does not count.

    every: steps from one turn of a fragment to its next.
    outer: makes the outer optimiser of the global parameters of a fragment: any of torch.optim, but for those that need a closure.
        By default SGD with lr=0.7 and Nesterov momentum of 0.9. None: the mean of the replicas is taken, as LocalSGD does.
    fragments: in which the model travels, about equally large, at turns spread over the round; a divisor of `every`.
    delay: steps for which an exchange may travel under the computation; below every / fragments. The replicas' own steps
        meanwhile are replaced, where `mixing` is 0.
    mixing: the weight of the replica's own parameters where the global ones come in, from 0 to 1.
    compression: how outer gradients travel, as dear.distribute() takes it for gradients: "bf16", "top-k:0.1,ef", ...; fp32 where "".
    inside: so many consecutive ranks are a site, which trains as one replica, with DeAR in every step; between sites it goes by rounds.
    """

    every: int = 64
    outer: Optional[MakeOuter] = nesterov
    fragments: int = 1
    delay: int = 0
    mixing: float = 0.0
    compression: str = ""
    inside: int = 1


@dataclass(frozen=True)
class LocalSGD:
    """Replicas train apart, and take the mean of their parameters once in `every` steps. As DiLoCo without an outer
    optimiser, fragments and delay, whose other arguments these are."""

    every: int = 16
    compression: str = ""
    inside: int = 1


Rounds = Union[DiLoCo, LocalSGD]


class _Outer:
    """An outer optimiser as the engine takes it."""

    def __init__(self, make: MakeOuter, parameters: list[torch.Tensor]) -> None:
        self.optimizer = make(parameters)
        if not isinstance(self.optimizer, Optimizer):
            raise _C.ConfigError(
                f"rounds: outer() returned a {type(self.optimizer).__name__}: return a torch.optim.Optimizer of the "
                "parameters that it is given"
            )
        held = [id(one) for group in self.optimizer.param_groups for one in group["params"]]
        if sorted(held) != sorted(map(id, parameters)):
            raise _C.ConfigError(
                "rounds: outer() returned an optimiser of other parameters: return one of all those that it is given, which "
                "are the global ones of a fragment"
            )
        if isinstance(self.optimizer, LBFGS):
            raise _C.ConfigError("rounds: LBFGS calls a closure, and an outer optimiser has none: take SGD or AdamW")

    def step(self) -> None:
        self.optimizer.step()

    def state(self) -> bytes:
        stream = io.BytesIO()
        torch.save(self.optimizer.state_dict(), stream)
        return stream.getvalue()

    def set_state(self, state: bytes) -> None:
        self.optimizer.load_state_dict(torch.load(io.BytesIO(state), weights_only=True))


class Replica:
    """The rounds of one DataParallel."""

    _on_every_rank = True  # state_dict() is a call of every rank, for checkpoints to know

    def __init__(
        self,
        rounds: Rounds,
        module: nn.Module,
        optimizers: list[Optimizer],
        group: _C.Group,
        buffers: str,
        compression: str,
    ) -> None:
        _require_usable(rounds, module, buffers)
        diloco = (
            rounds
            if isinstance(rounds, DiLoCo)
            else DiLoCo(every=rounds.every, outer=None, compression=rounds.compression, inside=rounds.inside)
        )
        if compression and diloco.inside == 1:
            raise _C.ConfigError(
                f"compression={compression!r} is of gradients, and with rounds a rank alone sends none: give it to the rounds"
            )
        if diloco.inside != 1 and any(one.device.type != "cpu" for one in module.parameters()):
            raise _C.ConfigError(
                f"rounds: a site of {diloco.inside} ranks trains on the CPU, for no process group of the site carries memory of "
                "a device: leave out inside, or move the model to the CPU"
            )
        outer = diloco.outer
        if outer is not None and not callable(outer):
            raise _C.ConfigError(f"rounds: outer is a {type(outer).__name__}: pass a function of parameters")
        self._group, self._optimizers = group, optimizers
        self._outer: Any = outer
        self._outers: list[_Outer] = []
        self._held = self._count()
        self._every = diloco.every
        self._engine: Any = _C.Rounds(
            _trained(module, optimizers),
            [(name, one) for name, one in module.named_buffers()],
            group,
            every=_whole("every", diloco.every),
            fragments=_whole("fragments", diloco.fragments),
            delay=_whole("delay", diloco.delay),
            mixing=float(diloco.mixing),
            inside=_whole("inside", diloco.inside),
            compression=diloco.compression,
            outer=None if outer is None else self._make_outer,
        )
        self.group: _C.Group = self._engine.inside()
        self.number = group.rank // diloco.inside
        self.end, self.follow = self._engine.end, self._engine.follow

    def _make_outer(self, parameters: list[torch.Tensor]) -> _Outer:
        self._outers.append(_Outer(self._outer, parameters))
        return self._outers[-1]

    def _count(self) -> int:
        return sum(len(group["params"]) for optimizer in self._optimizers for group in optimizer.param_groups)

    def require_same_parameters(self) -> None:
        if self._count() != self._held:
            raise _C.ConfigError(
                f"rank {self._group.rank}: the optimiser has other parameters than when the rounds began, which would not be "
                "averaged: close() the model, and distribute() it anew"
            )

    @contextlib.contextmanager
    def global_parameters(self) -> Iterator[None]:
        self._engine.show_global()
        try:
            yield
        finally:
            self._engine.show_own()

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = self._engine.report()
        seconds = report["communication_seconds"]
        hidden = max(0.0, 1 - report["exposed_seconds"] / seconds) if seconds > 0 else 1.0
        return {**report, "hidden": hidden, "bytes_per_step": report["bytes"] / max(1, report["steps"])}

    def memory(self) -> int:
        return int(self._engine.report()["memory_bytes"]) + sum(
            value.nbytes
            for outer in self._outers
            for state in outer.optimizer.state.values()
            for value in state.values()
            if isinstance(value, torch.Tensor)
        )

    # ---- checkpoints: each replica has a file of its own

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self._engine.state()

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self._engine.load_state(state)

    def path_of(self, path: str) -> str:
        return path if self.number == 0 else f"{path}.replica{self.number}"

    def together(self, act: Callable[[], T]) -> T:
        """What `act` returns; where it throws on some ranks, a ConfigError on every rank, which names the first of them."""
        error: Optional[Exception] = None
        result: Any = None
        try:
            result = act()
        except Exception as failure:
            error = failure
        for rank, text in enumerate(_C.gather_bytes(self._group, reason_of(error).encode())):
            if text:
                message = text.decode()
                raise _C.ConfigError(message if message.startswith("rank ") else f"rank {rank}: {message}") from error
        return result  # type: ignore[no-any-return]

    def everyone_has(self, mine: Sequence[int]) -> list[int]:
        """Those numbers that every replica has, in this one's order."""
        all_of = _C.gather_bytes(self._group, " ".join(map(str, mine)).encode())
        common = set.intersection(*(set(map(int, theirs.split())) for theirs in all_of))
        return [number for number in mine if number in common]


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _C.ConfigError(f"rounds: {name}={value!r}: give a whole number")
    return value


def _trained(module: nn.Module, optimizers: list[Optimizer]) -> list[tuple[str, torch.Tensor]]:
    """The parameters of the module, then what an optimiser alone holds."""
    named: list[tuple[str, torch.Tensor]] = list(module.named_parameters())
    known = {id(one) for _, one in named}
    for number, group in enumerate(group for optimizer in optimizers for group in optimizer.param_groups):
        alone = (one for one in group["params"] if id(one) not in known)
        named += [(f"optimiser.{number}.{index}", one) for index, one in enumerate(alone)]
    return named


def _require_usable(rounds: Any, module: nn.Module, buffers: str) -> None:
    if not isinstance(rounds, (DiLoCo, LocalSGD)):
        raise _C.ConfigError(f"rounds is a {type(rounds).__name__}: pass a dear.DiLoCo or a dear.LocalSGD")
    if buffers not in ("synchronize", "construction"):
        raise _C.ConfigError(
            f"buffers={buffers!r} is of a training that sends in every step: with rounds each replica keeps its own buffers"
        )
    for name, one in module.named_modules():
        if isinstance(one, Travelling):
            raise _C.ConfigError(
                f"rounds: the experts of '{name}' lie on several ranks, which need each other in every step: train it without rounds"
            )
        if isinstance(one, nn.SyncBatchNorm) or type(one).__name__ == "SyncBatchNorm":
            raise _C.ConfigError(
                f"rounds: '{name}' is a SyncBatchNorm, which sends in every forward pass: take a BatchNorm or a GroupNorm"
            )


class ByRounds:
    """The methods of a DataParallel that rounds add, or change."""

    _rounds: Optional[Replica]
    _everyone: Any

    @contextlib.contextmanager
    def global_parameters(self) -> Iterator[None]:
        """With rounds: within it the module has the global parameters, as the last exchanges left them, alike on all ranks, to
        be evaluated or saved; then the replica's own are back. No step may be made within it. Without rounds nothing changes.
        """
        if self._rounds is None:
            yield
        else:
            with self._rounds.global_parameters():
                yield

    def rebuild(self) -> None:
        if self._rounds is not None:
            raise _C.ConfigError(
                "rounds: a model keeps its layers while it trains by rounds: close() it, and distribute() anew"
            )
        super().rebuild()  # type: ignore[misc]

    def _require_same_model(self) -> None:
        if self._rounds is not None:
            self._rounds.require_same_parameters()
        super()._require_same_model()  # type: ignore[misc]

    def on_step(self, callback: Callable[[Any], None], every: int = 1, ranks: str = "each") -> Any:
        if self._rounds is None:
            return super().on_step(callback, every, ranks)  # type: ignore[misc]
        self._refuse_reduced(ranks)
        rank, world = self._everyone.rank, self._everyone.size
        if ranks == "first" and rank != 0:
            return super().on_step(lambda _: None, every, "first")  # type: ignore[misc]
        if not callable(callback):
            return super().on_step(callback, every, ranks)  # type: ignore[misc]
        return super().on_step(  # type: ignore[misc]
            lambda metrics: callback(dataclasses.replace(metrics, rank=rank, ranks=world)), every, "each"
        )

    def write_metrics(self, path: Any, every: int = 1, ranks: str = "first") -> Any:
        if self._rounds is None:
            return super().write_metrics(path, every, ranks)  # type: ignore[misc]
        self._refuse_reduced(ranks)
        if ranks == "first" and self._rounds.number != 0:
            return super().on_step(lambda _: None, every, "first")  # type: ignore[misc]
        own = str(self._everyone.rank) if self._rounds.group.size == 1 else f"{self._rounds.number}.{{rank}}"
        ranks = "first" if self._rounds.group.size == 1 and "{rank}" in str(path) else ranks
        return super().write_metrics(str(path).replace("{rank}", own), every, ranks)  # type: ignore[misc]

    def memory(self) -> dict[str, int]:
        memory: dict[str, int] = super().memory()  # type: ignore[misc]
        if self._rounds is None:
            return memory
        return {**memory, "rounds": self._rounds.memory(), "total": memory["total"] + self._rounds.memory()}

    def _refuse_reduced(self, ranks: str) -> None:
        if ranks == "reduced":
            raise _C.ConfigError(
                "rounds: metrics of all ranks together would be sent between the rounds: take ranks='each' or 'first'"
            )
