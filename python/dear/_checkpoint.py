"""dear.save() and dear.load(): a training that can go on where it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Optional

import torch

from . import _C, _checkpoint_file, _moe_checkpoint, _rounds, _state
from ._distribute import DataParallel
from ._failures import reason_of
from ._sharded import Sharded

Extra = Optional[Mapping[str, Any]]
"""What has a state_dict() and a load_state_dict() of its own: a scheduler, a GradScaler."""


def save(
    path: str,
    model: DataParallel,
    position: Mapping[str, Any] | int = 0,
    *,
    extra: Extra = None,
    random: bool = True,
) -> None:
    """Saves all that training needs to go on into one file: the model, the state and options of its optimiser, what
    compression remembers, PyTorch's random generator of each rank, and the position.

        dear.save("last.pt", model, {"step": step, "epoch": epoch}, extra={"scheduler": scheduler})

    torch.load(path, weights_only=True) reads it: {"model": ..., "optimizer": ..., "position": ..., "extra": ...}, as the
    state_dict() of each has it. Every rank calls it, between a step and the next backward; rank 0 writes, and gets the
    state from the shards vector by vector, one bucket at a time. A file of that name is replaced once the new one is whole
    and on the disk.

    position: the number of steps taken, or a dict of whatever tells where the program was, with that number as "step".
    extra: objects with state_dict() and load_state_dict(), by name: learning-rate schedulers, a GradScaler, a KFAC. Rank
        0's.

    With rounds each replica has a file of its own, the first one `path` itself, the others `path` with ".replica1", ... behind.

    ConfigError on every rank where the file cannot be written; training can go on. ConfigError in a join.
    """
    extra = with_rounds(model, extra)
    if model._rounds is None:
        model._training.save(path, False, random, describing(model, position, extra))
        return
    own = model._rounds.path_of(path)
    describe = describing(model, position, extra)
    model._rounds.together(lambda: model._training.save(own, False, random, describe))


def with_rounds(model: DataParallel, extra: Extra) -> Extra:
    return extra if model._rounds is None else {**(extra or {}), _rounds.EXTRA: model._rounds}


def load(
    path: str,
    model: DataParallel,
    *,
    extra: Extra = None,
    random: bool = True,
    weights_only: bool = True,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Puts back what save() saved, in Python or C++, and returns the position. Every rank calls it, between a step and
    the next backward, best before the first; rank 0 reads. The number of ranks, the policy and the buckets may be others
    than those that saved; with the same number of ranks training goes on to the bit.

    weights_only: as of torch.load(): False where the position holds objects of classes of your own, and you trust the file.
    say: is told on rank 0, in a sentence, what could not be put back.

    ConfigError on every rank, and nothing has changed, for a file that is damaged, of another model (names the first tensor
    that differs) or of an optimiser of another class. ConfigError in a join.
    """
    if model._rounds is not None:
        path = model._rounds.path_of(path)
    return load_own(path, model, extra=with_rounds(model, extra), random=random, weights_only=weights_only, say=say)


def load_own(
    path: str,
    model: DataParallel,
    *,
    extra: Extra,
    random: bool,
    weights_only: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """As load(), of the file of this replica, with its rounds among `extra`."""
    model._training.settle()
    saved: dict[str, Any] = {}

    def read() -> Any:
        saved.update(_checkpoint_file.load(path, weights_only))
        return contents_of(model, saved, extra, path)

    def contents_on_site() -> Any:
        return from_rank_0(model._group, read)

    contents = contents_on_site() if model._rounds is None else model._rounds.together(contents_on_site)
    return restore(model, saved, contents, extra, rank_0=True, path=path, random=random, say=say)


def contents_of(model: DataParallel, saved: dict[str, Any], extra: Extra, path: str) -> Any:
    """What every rank must know, of a checkpoint that fits the training."""
    _require_same(model, saved, path)
    outlines: Any = []
    groups: Any = saved["optimizer"]
    if not keeps_own_state(model):
        outlines = _outlines(model, saved)
        groups = [
            {name: value for name, value in one.items() if name != "params"}
            for one in saved["optimizer"]["param_groups"]
        ]
    # What modules keep beside their tensors (set_extra_state()).
    beside = {name: value for name, value in saved["model"].items() if not torch.is_tensor(value)}
    return outlines, groups, saved.get("position", {"step": 0}), _extra_of(saved, extra, path), beside


def restore(
    model: DataParallel,
    saved: dict[str, Any],
    contents: Any,
    extra: Extra,
    *,
    rank_0: bool,
    path: str = "",
    random: bool = False,
    say: Callable[[str], None] = print,
    compression: Any = None,
    sharded: Optional[Sharded] = None,
) -> dict[str, Any]:
    """`saved` is what this rank, or only rank 0, has read, or all ranks have together, `sharded`; `path` the file for what
    each rank has for itself."""
    training = model._training
    outlines, groups, position, extras, beside = contents
    tensors = {**saved.get("model", {}), **saved.get("optimizer_only", {})}
    values = {name: value for name, value in tensors.items() if torch.is_tensor(value)}
    if sharded is None:
        training.set_model(values, rank_0)
    else:
        training.set_model_of_shards(sharded.shards, {name: sharded.record(value) for name, value in values.items()})
    if beside:
        model.module.load_state_dict({**model.module.state_dict(), **beside})
    own = keeps_own_state(model)
    vectors = _vectors(model, saved) if saved and not own else []
    outlines = [None] * len(training.trained()) if own else outlines
    if sharded is None:
        training.set_optimizer(
            outlines,
            lambda parameter, name: vectors[parameter][name],
            rank_0,
            path=path,
            random=random,
            say=say,
            compression=compression,
        )
    else:
        records = [{name: sharded.record(value) for name, value in of_one.items()} for of_one in vectors]
        training.set_optimizer_of_shards(sharded.shards, outlines, records, random, say)
    if own:
        for optimizer, state in zip(model._optimizers, groups.get("several", [groups])):
            optimizer.load_state_dict(state)
    else:
        for ours, theirs in zip(_groups(model), groups):
            ours.update(theirs)
    if model._experts:
        _moe_checkpoint.scatter(model, saved or None)
    for name, state in extras.items():
        extra[name].load_state_dict(state)  # type: ignore[index]
    return position


Describe = Callable[[_checkpoint_file.Add, Any, Any, Any], bytes]


def describing(
    model: DataParallel, position: Mapping[str, Any] | int, extra: Extra, *, sharded: bool = False
) -> Describe:
    """What makes the pickle of a checkpoint at this position. Every rank calls it."""
    _moe_checkpoint.require_whole(model, sharded)
    experts = _moe_checkpoint.gather(model)
    # Those whose state every rank has a part of: a KFAC.
    gathered = {name: one.state_dict() for name, one in (extra or {}).items() if getattr(one, "_on_every_rank", False)}

    def describe(add: _checkpoint_file.Add, outlines: Any, vectors: Any, ranks: Any) -> bytes:
        return _checkpoint_file.dumps(
            {
                "model": {**model.module.state_dict(), **experts.model},
                "optimizer": state_of_program(model) or _optimizer_state(model, outlines, vectors, experts.states),
                "position": dict(position) if isinstance(position, Mapping) else {"step": position},
                "extra": {
                    name: gathered[name] if name in gathered else value.state_dict()
                    for name, value in (extra or {}).items()
                },
                "optimizer_only": _held_by_optimizer(model),
                "ranks": ranks,
                "dear": {"version": 1, "optimizer": _class_of(model), "ranks": model._group.size},
            },
            add,
        )

    return describe


def _class_of(model: DataParallel) -> str:
    return " and ".join(type(optimizer).__name__ for optimizer in model._optimizers)


def _groups(model: DataParallel) -> list[dict[str, Any]]:
    """The parameter groups of all optimisers."""
    return [group for optimizer in model._optimizers for group in optimizer.param_groups]


def _numbered(model: DataParallel) -> list[Optional[int]]:
    """By the number that a state_dict() gives a parameter: its index among those that are trained."""
    index = {id(tensor): i for i, (_, tensor) in enumerate(model._training.trained())}
    return [index.get(id(parameter)) for group in _groups(model) for parameter in group["params"]]


def state_of_program(model: DataParallel) -> dict[str, Any]:
    """Where the program's optimiser updates the parameters, and nobody knows what it remembers: what its state_dict() says;
    of several, a list. Empty where the state is known."""
    if not keeps_own_state(model):
        return {}
    states = [optimizer.state_dict() for optimizer in model._optimizers]
    return states[0] if len(states) == 1 else {"several": states}


def keeps_own_state(model: DataParallel) -> bool:
    return any(source.of_program and not source.known for source in model._sources)


def _held_by_optimizer(model: DataParallel) -> dict[str, torch.Tensor]:
    """Tensors that are trained, and in no module."""
    own = {id(parameter) for parameter in model.module.parameters()}
    return {name: tensor for name, tensor in model._training.trained() if id(tensor) not in own}


def _optimizer_state(model: DataParallel, outlines: Any, vectors: Any, of_experts: dict[int, Any]) -> dict[str, Any]:
    """As state_dict() of the optimiser has it, with the records in place of vectors."""
    state = dict(of_experts)
    for number, trained in enumerate(_numbered(model)):
        if trained is not None and outlines[trained] is not None:
            state[number] = {**_state.join_state(({}, outlines[trained][1])), **vectors[trained]}
    first, groups = 0, []
    for group in _groups(model):
        numbers = list(range(first, first + len(group["params"])))
        first += len(numbers)
        groups.append({**{name: value for name, value in group.items() if name != "params"}, "params": numbers})
    return {"state": state, "param_groups": groups}


# ---- what is read


def load_shards(
    path: str,
    model: DataParallel,
    *,
    extra: Extra = None,
    random: bool = True,
    weights_only: bool = True,
    say: Callable[[str], None] = print,
    shards: Sharded,
) -> dict[str, Any]:
    """As load(), from shards that are open; each rank has read a part of them."""
    saved: dict[str, Any] = {}

    def read() -> None:
        saved.update(shards.load(weights_only))

    on_every_rank(model._group, read, path)
    shapes = {tuple(tensor.shape) for _, tensor in model._training.trained()}
    for name, value in saved.items():
        if name == "optimizer" and not keeps_own_state(model):
            shards.materialise(value, lambda tensor: tuple(tensor.shape) in shapes)
        elif name not in ("model", "optimizer_only"):
            saved[name] = shards.materialise(value)
    contents = on_every_rank(model._group, lambda: contents_of(model, saved, extra, path), path)
    return restore(model, saved, contents, extra, rank_0=False, random=random, say=say, sharded=shards)


def on_every_rank(group: _C.Group, read: Callable[[], Any], path: str) -> Any:
    """What `read` returns; where it throws on some ranks, a ConfigError on every rank, which names the first of them."""
    error, value = None, None
    try:
        value = _C.patiently(group, read)
    except (_C.TransportError, _C.TimeoutError):
        raise
    except Exception as failure:
        error = failure
    for rank, theirs in enumerate(_C.gather_bytes(group, reason_of(error).encode())):
        if theirs:
            raise _C.ConfigError(f"rank {rank} cannot read the checkpoint '{path}': {theirs.decode()}") from error
    return value


def from_rank_0(group: _C.Group, read: Callable[[], Any]) -> Any:
    """What `read` returns on rank 0, on every rank; where it throws there, a ConfigError on every rank, which names it."""
    packed = b""

    def pack() -> None:
        nonlocal packed
        try:
            packed = _checkpoint_file.packed((None, read()))
        except Exception as error:
            reason = reason_of(error)
            who = "" if reason.startswith("rank ") else "rank 0: "
            packed = _checkpoint_file.packed((who + reason, None))

    _C.patiently(group, pack if group.rank == 0 else lambda: None)
    refusal, value = _checkpoint_file.unpacked(_C.gather_bytes(group, packed)[0])
    if refusal is not None:
        raise _C.ConfigError(refusal)
    return value


def _shape(value: Any) -> str:
    return f"of shape {list(value.shape)}" if torch.is_tensor(value) else "not"


def _require_same(model: DataParallel, saved: dict[str, Any], path: str) -> None:
    ours, theirs = model.module.state_dict(), saved["model"]
    whole = _moe_checkpoint.shapes(model._experts)
    for name in [*ours, *theirs]:
        other = _shape(theirs.get(name))
        mine = f"of shape {list(whole[name])}" if name in whole else _shape(ours.get(name))
        if mine != other:
            raise _C.ConfigError(
                f"'{path}' is a checkpoint of another model: '{name}' is {other} there, and {mine} here; "
                f"make the model that was saved"
            )
    optimizer = saved.get("dear", {}).get("optimizer", _class_of(model))
    if optimizer != _class_of(model):
        raise _C.ConfigError(
            f"'{path}' is a checkpoint of the optimiser {optimizer}, and this one is {_class_of(model)}: make the "
            f"optimiser that was saved"
        )
    if keeps_own_state(model):
        return  # its load_state_dict() knows
    sizes = [len(group["params"]) for group in _groups(model)]
    if sizes != [len(group["params"]) for group in saved["optimizer"]["param_groups"]]:
        raise _C.ConfigError(
            f"'{path}' is a checkpoint of an optimiser with other parameter groups: make those that were saved"
        )


def _states(model: DataParallel, saved: dict[str, Any]) -> list[_state.State]:
    """By the parameters that are trained: vectors and the rest."""
    trained = model._training.trained()
    states: list[_state.State] = [None] * len(trained)
    for number, index in enumerate(_numbered(model)):
        if index is not None and number in saved["optimizer"]["state"]:
            state = dict(saved["optimizer"]["state"][number])
            if not model._fp32_masters:
                state.pop(_state.MASTER, None)
            states[index] = _state.split_state(state, trained[index][1], whole=True)
    return states


def _outlines(model: DataParallel, saved: dict[str, Any]) -> list[Optional[tuple[list[str], bytes]]]:
    return [None if state is None else (list(state[0]), state[1]) for state in _states(model, saved)]


def _vectors(model: DataParallel, saved: dict[str, Any]) -> list[dict[str, torch.Tensor]]:
    return [{} if state is None else state[0] for state in _states(model, saved)]


def _extra_of(saved: dict[str, Any], extra: Extra, path: str) -> dict[str, Any]:
    theirs = saved.get("extra", {})
    for name in extra or {}:
        if name == _rounds.EXTRA and name not in theirs:
            raise _C.ConfigError(
                f"'{path}' is a checkpoint of a training without rounds, which has no global parameters: load it before distribute()"
            )
        if name not in theirs:
            raise _C.ConfigError(
                f"'{path}' has no '{name}' among its extra objects: save it with extra={{{name!r}: ...}}"
            )
    return {name: theirs[name] for name in extra or {}}
