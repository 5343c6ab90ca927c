"""A model as a graph of what it computes, seen while it runs on tensors without storage."""

from __future__ import annotations

import dataclasses
import operator
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.fx import _symbolic_trace
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.flop_counter import flop_registry

from . import _C

_NO_CHANGE = "take it out of what a pipeline runs, or make the module one operator by leaves="


@dataclasses.dataclass
class Traced:
    """`nodes`: of the graph, in order, those that matter; the last one is its output. Each has in meta: "value" (a tensor
    without storage, or a structure of such), "work" (operations of a forward), "path" (of the module it belongs to),
    "changes" (nodes whose tensors it changes in place), "leaf" (the module that it calls), "saved" (the memory that its
    backward reads, but for parameters and buffers)."""

    model: nn.Module
    nodes: list[fx.Node]
    inputs: dict[str, Tensor]  # of a micro-batch, by the name of the node
    modes: dict[str, bool]  # whether modules were training, by name
    constants: list[str]  # attributes of the model that hold tensors which its forward made

    def forget_constants(self) -> None:
        for name in self.constants:
            delattr(self.model, name)


class _Work(TorchDispatchMode):
    """Adds up operations: those of products are counted, each element of any other result is one."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            self.operations += count(*args, **(kwargs or {}), out_val=result)
        else:
            self.operations += sum(one.numel() for one in tensors_in(result))
        return result


def tensors_in(value: Any) -> list[Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


class _Refused(Exception):
    pass


_OF_VALUES = (DataDependentOutputException, DynamicOutputShapeException)


def _zeros(like: Tensor) -> Tensor:
    made = torch.zeros(like.shape, dtype=like.dtype, device=like.device)
    # In place on what is computed is no error, and on a leaf it is.
    return made.requires_grad_().clone() if like.requires_grad else made


class _Proxy(fx.Proxy):
    """Knows its value but for the numbers in it."""

    @property
    def value(self) -> Any:
        return self.node.meta["value"]

    def __getattr__(self, name: str) -> Any:
        if isinstance(self.node.meta["value"], Tensor) and not callable(getattr(self.node.meta["value"], name)):
            return self.tracer.create_proxy("call_function", getattr, (self, name), {})
        return super().__getattr__(name)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.value, dict):
            return iter(self.value)
        return (self[index] for index in range(len(self.value)))

    def __setitem__(self, index: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, index, value), {})


class _Tracer(fx.Tracer):
    def __init__(self, arguments: tuple[Any, ...], keywords: dict[str, Any], leaves: tuple[type, ...]) -> None:
        super().__init__()
        self.proxy_buffer_attributes = True
        self._arguments, self._keywords, self._leaves = arguments, keywords, leaves
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._evaluating = False
        self.where = ""
        self.inputs: dict[str, Tensor] = {}
        self._modes_of_torch = _modes_of_torch()
        self._resident: list[torch.UntypedStorage] = []

    def count_as_resident(self, tensors: Iterable[Tensor]) -> None:
        """Takes no notice of them where a backward reads them: parameters and buffers are in memory anyway."""
        for tensor in tensors:
            self._resident += [tensor.untyped_storage(), self._mode.from_tensor(tensor).untyped_storage()]

    # ---- what fx asks

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, self._leaves) or super().is_leaf_module(m, module_qualified_name)

    def path_of_module(self, mod: nn.Module) -> str:
        try:
            return super().path_of_module(mod)
        except NameError:
            raise _Refused(f"a {type(mod).__name__} is called that is no part of the model") from None

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self._evaluating:
            return forward(*args, **kwargs)
        self.where = self.path_of_module(m)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        return attr_val if self._evaluating else super().getattr(attr, attr_val, parameter_proxy_cache)

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        arguments = [self._input(f"input_{index}", value) for index, value in enumerate(self._arguments)]
        keywords = {name: self._input(name, value) for name, value in self._keywords.items()}

        def call() -> Any:
            return root_fn(self.root, *arguments, **keywords)

        return call, []

    def _input(self, name: str, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        node = self.create_node("placeholder", name, (), {}, name)
        with self._mode:
            node.meta["value"] = self._mode.from_tensor(value.detach())
        self.inputs[node.name] = value
        return self.proxy(node)

    def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, *rest: Any, **more: Any) -> Any:
        if self._modes_of_torch != _modes_of_torch():
            raise _Refused("its gradient mode, inference mode or autocast changes inside of the forward pass")
        proxy = super().create_proxy(kind, target, args, kwargs, *rest, **more)
        node = proxy.node
        node.meta["path"] = self.module_stack[next(reversed(self.module_stack))][0] if self.module_stack else ""
        before = [(one, tensor, tensor._version) for one in node.all_input_nodes for tensor in tensors_in(_value(one))]
        if kind == "call_module":
            leaf = node.meta["leaf"] = self.root.get_submodule(target)
            buffers = [(tensor, tensor._version, tensor.clone()) for tensor in leaf.buffers()]
        value = self._evaluate(node)
        node.meta["changes"] = list(dict.fromkeys(one for one, tensor, old in before if tensor._version != old))
        if kind == "call_module":
            # What no other tensor is mixed with has storage and changes.
            changed = [(tensor, copy) for tensor, old, copy in buffers if tensor._version != old]
            for tensor, copy in changed:
                tensor.copy_(copy)
            node.meta["changes_buffers"] = bool(changed)
        if kind != "get_attr" and not tensors_in(value) and not node.meta["changes"]:
            self.graph.erase_node(node)  # a shape, or what follows from it
            return value
        node.meta["value"] = value
        return proxy

    # ---- what its nodes give

    def _evaluate(self, node: fx.Node) -> Any:
        self._evaluating = True
        try:
            if node.op == "get_attr":
                return operator.attrgetter(node.target)(self.root)
            args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), self._input_of)
            saved: list[torch.UntypedStorage] = []
            looks = torch.autograd.graph.saved_tensors_hooks(
                lambda tensor: saved.append(tensor.untyped_storage()), lambda _: _
            )
            with self._mode, looks, _Work() as work:
                if node.op == "call_module":
                    value = self._call(node.meta["leaf"], args, kwargs)
                elif node.op == "call_method":
                    value = getattr(args[0], node.target)(*args[1:], **kwargs)
                else:
                    value = node.target(*args, **kwargs)
        finally:
            self._evaluating = False
        node.meta["work"] = work.operations
        resident = {one._cdata for one in self._resident}
        node.meta["saved"] = [one for one in saved if one._cdata not in resident]
        return value

    def _call(self, leaf: nn.Module, args: Any, kwargs: Any) -> Any:
        try:
            return _symbolic_trace._orig_module_call(leaf, *args, **kwargs)
        except _OF_VALUES:
            if not isinstance(leaf, self._leaves):
                raise
        # What depends on values is tried with zeros: it may give other values, but not other shapes.
        with _disable_current_modes(), torch.random.fork_rng(devices=[]):
            args, kwargs = _pytree.tree_map_only(Tensor, _zeros, (args, kwargs))
            value = _symbolic_trace._orig_module_call(leaf, *args, **kwargs)
        return _pytree.tree_map_only(
            Tensor, lambda one: self._mode.from_tensor(one.detach()).requires_grad_(one.requires_grad), value
        )

    def _input_of(self, node: fx.Node) -> Any:
        if "value" not in node.meta:  # a constant
            node.meta["value"] = operator.attrgetter(node.target)(self.root)
        return node.meta["value"]


def _value(node: fx.Node) -> Any:
    return node.meta.get("value")


def _modes_of_torch() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        *(torch.is_autocast_enabled(device) for device in ("cpu", "cuda")),
    )


def trace(model: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], leaves: tuple[type, ...]) -> Traced:
    """ConfigError, one sentence that says where, for a model that cannot be traced."""
    tracer = _Tracer(arguments, keywords, leaves)
    modes = {name: module.training for name, module in model.named_modules()}
    drawn = torch.get_rng_state()
    before = set(vars(model))

    def constants() -> list[str]:
        return [name for name in vars(model) if name not in before]

    tracer.count_as_resident((*model.parameters(), *model.buffers()))
    try:
        graph = tracer.trace(model)
    except Exception as error:
        for name in constants():
            delattr(model, name)
        raise _C.ConfigError(_sentence(error, tracer.where, model)) from error
    if not torch.equal(drawn, torch.get_rng_state()):
        torch.set_rng_state(drawn)
        raise _C.ConfigError(
            "the model draws random numbers that depend on no input, which a pipeline would draw once for ever: draw them "
            "in a module that is one operator (leaves=)"
        )
    return Traced(model, _needed(graph), tracer.inputs, modes, constants())


def _needed(graph: fx.Graph) -> list[fx.Node]:
    """Takes out of the graph what nothing reads."""
    for node in reversed(list(graph.nodes)):
        changes = node.meta.get("changes") or node.meta.get("changes_buffers")
        if node.op not in ("output", "placeholder") and not node.users and not changes:
            graph.erase_node(node)
    return list(graph.nodes)


def _sentence(error: Exception, where: str, model: nn.Module) -> str:
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.name == "_evaluate":
            break
        folders = os.path.dirname(frame.filename).split(os.sep)
        if "torch" not in folders and "dear" not in folders[-1:]:
            place = f" at {os.path.basename(frame.filename)}:{frame.lineno}"
    module = model.get_submodule(where)
    name = f"'{where}' ({type(module).__name__})" if where else type(module).__name__
    said = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, _OF_VALUES):
        said = f"a number or shape that {said} gives depends on the values of tensors"
    if len(said) > 200:
        said = said[:200] + "..."
    return f"the model cannot be traced{place}, in {name}: {said}; {_NO_CHANGE}"
