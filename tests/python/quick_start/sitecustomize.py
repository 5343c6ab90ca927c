"""For every Python process of a test, by PYTHONPATH: torch.optim without the import of torch.compile.

Each method of an optimiser asks torch._dynamo to leave it alone, and for that imports it, which takes longer than PyTorch
itself. Here a method does so where a program has imported torch._dynamo; elsewhere nothing is compiled that could look at it.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def _lazily(decorate: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """The decorator, whose functions are plain(function) until a program imports torch._dynamo."""

    def lazy(function: Any = None, *arguments: Any, **options: Any) -> Any:
        if function is None:
            return functools.partial(lazy, *arguments, **options)
        decorated, undecorated = decorate(function, *arguments, **options), plain(function)

        @functools.wraps(function)
        def chosen(*args: Any, **kwargs: Any) -> Any:
            return (decorated if "torch._dynamo" in sys.modules else undecorated)(*args, **kwargs)

        return chosen

    return lazy


def _with_grad_where_differentiable(step: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        import torch

        with torch.set_grad_enabled(self.defaults["differentiable"]):
            return step(self, *args, **kwargs)

    return run


# By module, the decorator that imports torch._dynamo, and what it does without.
_DECORATORS: dict[str, tuple[str, Callable[..., Any]]] = {
    "torch._compile": ("_disable_dynamo", lambda function: function),
    "torch.optim.optimizer": ("_use_grad_for_differentiable", _with_grad_where_differentiable),
}


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in _DECORATORS:
            return None
        decorator, plain = _DECORATORS.pop(name)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_replace(module: ModuleType) -> None:
            run(module)
            setattr(module, decorator, _lazily(getattr(module, decorator), plain))

        spec.loader.exec_module = run_and_replace  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Finder())
