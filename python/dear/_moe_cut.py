"""The forward pass of a model in parts of its batch, which take turns where their tokens travel: so that all-to-alls of one part
are hidden under attention, gates and experts of another (Lancet, Jiang et al. 2024,
https://doi.org/10.48550/arXiv.2404.19429, section 5).

Each part runs the module's own forward, as a coroutine: a mixture that has launched an all-to-all pauses, and the next part goes
on. All parts belong to one thread, so autograd numbers their nodes in the order in which they ran, and the backward pass goes
the way back, with its all-to-alls hidden alike.
"""

from __future__ import annotations

import contextvars
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from . import _C


def outside_of_graphs(method: Any) -> Any:
    """The method, which runs as it is in a model that torch.compile() has compiled: a graph ends before it. (The decorator
    torch.compiler.disable would load the compiler in every program.)"""

    disabled: Any = None

    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal disabled
        if disabled is None and (compiler := sys.modules.get("torch._dynamo")) is not None:
            disabled = compiler.disable(method)
        return (disabled or method)(*args, **kwargs)

    run._torchdynamo_disable = True  # type: ignore[attr-defined]
    return run


class NotCut(Exception):
    """A reason for which a forward pass cannot be cut, as a clause."""


class Cut:
    """One forward pass in parts of `samples` each."""

    def __init__(self, parts: int, samples: int, greenlet: Any) -> None:
        self.parts, self.samples = parts, samples
        self.part = 0  # the one that runs
        self._calls: list[dict[Any, int]] = [{} for _ in range(parts)]
        self._shared: dict[Any, Any] = {}
        self._greenlet, self._hooks = greenlet, _hooks()

    def shared(self, key: Any, make: Callable[[], Any]) -> Any:
        """The object that all parts have of this call: their n-th with this key. The first part makes it."""
        nth = self._calls[self.part].get(key, 0)
        self._calls[self.part][key] = nth + 1
        if (key, nth) not in self._shared:
            if self.part != 0:
                raise NotCut("its layers are not called alike for every part of a batch")
            self._shared[key, nth] = make()
        return self._shared[key, nth]

    def require_recording(self) -> None:
        """NotCut within what is computed once more in the backward pass, where parts cannot take turns."""
        if not torch.is_grad_enabled() or _hooks() != self._hooks:
            raise NotCut("activations within it are checkpointed")

    def pause(self) -> None:
        """The other parts go on, each up to its next pause."""
        self._greenlet.getcurrent().parent.switch(_PAUSED)

    def run(self, forward: Callable[..., Any], arguments: list[tuple[Any, Any]]) -> list[Any]:
        """What forward returns for the arguments of each part."""
        around = current()
        base = _C.ThreadState()
        running = [self._greenlet.greenlet(forward) for _ in arguments]
        for one in running:
            one.gr_context = contextvars.copy_context()
        states, results = [base] * len(running), [_PAUSED] * len(running)
        try:
            while not all(one.dead for one in running):
                for self.part, one in enumerate(running):
                    if one.dead:
                        raise NotCut("the parts of a batch do not pass equally many mixtures")
                    given, named = ((), {}) if one else arguments[self.part]
                    _here.cut = self
                    states[self.part].restore()
                    try:
                        results[self.part] = one.switch(*given, **named)
                    finally:
                        states[self.part] = _C.ThreadState()
                        base.restore()
                        _here.cut = around
        finally:
            for one, state in zip(running, states):
                if one and not one.dead:  # another part has failed
                    state.restore()
                    one.throw()
            base.restore()
        return results


_PAUSED = object()
_here = threading.local()


def current() -> Optional[Cut]:
    """The forward pass of which a part runs on this thread."""
    return getattr(_here, "cut", None)


def _hooks() -> Any:
    """Those that see what autograd saves now, as those of checkpoint() do."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


class Samples:
    """How the arguments and results of a forward pass are cut: tensors whose first dimension is the batch are, others are for all
    parts."""

    def __init__(self, args: Any, kwargs: Any) -> None:
        leaves, _ = pytree.tree_flatten((args, kwargs))
        sizes = [len(one) if isinstance(one, Tensor) and one.dim() > 0 else -1 for one in leaves]
        self.batch = next((size for size in sizes if size >= 0), -1)
        self._cut = [size == self.batch and size >= 0 for size in sizes]

    def split(self, args: Any, kwargs: Any, parts: int) -> tuple[list[tuple[Any, Any]], int]:
        """The arguments of each part, and its samples."""
        leaves, tree = pytree.tree_flatten((args, kwargs))
        if len(leaves) != len(self._cut):
            raise _C.ConfigError("its forward pass is called with other arguments than before")
        batch = next((len(one) for one, cut in zip(leaves, self._cut) if cut), -1)
        if batch < 1 or batch % parts:
            raise _C.ConfigError(f"a batch of {max(batch, 0)} samples cannot be cut into {parts} equal parts")
        size = batch // parts
        found = []
        for begin in range(0, batch, size):
            mine = []
            for one, cut in zip(leaves, self._cut):
                if cut and len(one) != batch:
                    raise _C.ConfigError(f"its arguments have batches of {batch} and of {len(one)} samples")
                mine.append(one[begin : begin + size] if cut else one)
            found.append(pytree.tree_unflatten(mine, tree))
        return found, size

    @staticmethod
    def join(results: list[Any], samples: int) -> Any:
        """NotCut for a result that is not one of samples."""
        flat = [pytree.tree_flatten(one) for one in results]
        leaves, tree = flat[0]
        joined = []
        for number, first in enumerate(leaves):
            alike = [one[0][number] for one in flat if one[1] == tree]
            if isinstance(first, Tensor):
                if len(alike) < len(flat) or any(one.dim() == 0 or len(one) != samples for one in alike):
                    raise NotCut("its forward returns what has no sample in its first dimension, such as a loss")
                joined.append(torch.cat(alike))
            elif len(alike) < len(flat) or any(one is not first and one != first for one in alike):
                raise NotCut("its forward returns another object for each part of a batch")
            else:
                joined.append(first)
        return pytree.tree_unflatten(joined, tree)


def differs(one: Any, other: Any) -> bool:
    """Whether two results are apart by more than rounding."""
    (first, tree), (second, as_well) = pytree.tree_flatten(one), pytree.tree_flatten(other)
    if tree != as_well:
        return True
    for a, b in zip(first, second):
        if not isinstance(a, Tensor):
            continue
        if not isinstance(b, Tensor) or a.shape != b.shape or a.dtype != b.dtype:
            return True
        if not a.is_floating_point():
            if not torch.equal(a, b):
                return True
            continue
        if a.numel() == 0:
            continue
        allowed = min(256 * torch.finfo(a.dtype).eps, 0.05)
        a, b = a.detach().double(), b.detach().double()
        if not bool((a - b).abs().max() <= allowed * b.abs().max()):
            return True
    return False


def same_bits(one: Any, other: Any) -> bool:
    pairs = zip(pytree.tree_leaves(one), pytree.tree_leaves(other))
    return all(torch.equal(a, b) for a, b in pairs if isinstance(a, Tensor))


def module_to_cut(model: nn.Module, mixtures: list[str]) -> str:
    """The name of the smallest module that holds these modules and has a forward pass; for a single one, of that which has the list of
    layers that it is in."""
    common = mixtures[0].split(".")
    for name in mixtures[1:]:
        path = name.split(".")
        while common != path[: len(common)]:
            common.pop()
    if ".".join(common) in mixtures:
        lists = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
        while common and not isinstance(model.get_submodule(".".join(common)), lists):
            common.pop()
    while common and not _has_forward(model.get_submodule(".".join(common))):
        common.pop()
    return ".".join(common)


def _has_forward(module: nn.Module) -> bool:
    return getattr(type(module), "forward", None) is not nn.Module.forward
