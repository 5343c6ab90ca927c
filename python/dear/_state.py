"""What an optimiser remembers of one parameter, as the engine takes it and gives it back."""

from __future__ import annotations

import pickle
from collections import defaultdict
from typing import Any, Optional

import torch
from torch.optim import Optimizer

from ._C import ConfigError

State = Optional[tuple[dict[str, torch.Tensor], bytes]]
"""The vectors of one parameter by name, and its other values, pickled; None for a parameter without state."""

MASTER = "master_parameter"
"""Among the vectors of a parameter in 16 bits, its fp32 copy."""


class StateElsewhere(defaultdict):  # type: ignore[type-arg]
    """In the place of an optimiser's `state` while that lies in shards: every use of it is a ConfigError that says where the
    state is. Otherwise a program would read, or reset, a dict that nobody looks at."""

    def __repr__(self) -> str:
        return "<state in shards: optimizer.state_dict() gathers it>"


def refuse(*_: Any, **__: Any) -> Any:
    raise ConfigError(
        "the optimiser's state lies in shards, each on the rank that updates it, and `state` of the optimiser has none of "
        "it: read it by optimizer.state_dict() and replace it by optimizer.load_state_dict(), on every rank; or keep it "
        'here whole with dear.distribute(..., update="program")'
    )


for _name in (
    "__bool__ __contains__ __copy__ __delitem__ __eq__ __getitem__ __ior__ __iter__ __len__ __missing__ __or__ __reduce_ex__ "
    "__reversed__ __ror__ __setitem__ clear copy get items keys pop popitem setdefault update values"
).split():
    setattr(StateElsewhere, _name, refuse)
StateElsewhere.__hash__ = None  # type: ignore[assignment]

# What is one number for a parameter, also for a parameter that is one number itself.
SCALARS = frozenset({"step", "mu_product", "eta", "mu"})


def split_state(state: dict[str, Any], parameter: torch.Tensor, *, whole: bool = False) -> State:
    """What an optimiser keeps of `parameter` as vectors, one value for each element, and the rest.

    ConfigError for a tensor that is neither of the parameter's shape nor a scalar, unless one rank owns the parameter
    `whole`: then it belongs to the rest.
    """
    if not state:
        return None
    vectors: dict[str, torch.Tensor] = {}
    rest: dict[str, Any] = {}
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            rest[name] = value
        elif value.dim() == 0 and (parameter.dim() > 0 or name in SCALARS):
            rest[name] = (str(value.dtype).removeprefix("torch."), value.item())
        elif value.shape == parameter.shape:
            vectors[name] = value
        elif whole:
            rest[name] = value.clone()  # no more than its own elements are pickled
        else:
            raise ConfigError(
                f"the optimiser keeps '{name}' of shape {list(value.shape)} for a parameter of shape "
                f"{list(parameter.shape)}, so its update is not elementwise: use an elementwise optimiser "
                f"such as AdamW"
            )
    return vectors, pickle.dumps(rest, protocol=4)


def join_state(state: State) -> dict[str, Any]:
    """The inverse of split_state()."""
    if state is None:
        return {}
    vectors, rest = state
    joined: dict[str, Any] = {}
    for name, value in pickle.loads(rest).items():
        scalar = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)
        joined[name] = torch.tensor(value[1], dtype=getattr(torch, value[0])) if scalar else value
    joined.update(vectors)
    return joined


def placed(state: dict[str, Any], parameter: torch.Tensor, group: dict[str, Any]) -> dict[str, Any]:
    """The state with its scalars where the optimiser of this parameter group keeps them: with `fused` or `capturable` on the
    device of the parameter."""
    if not (group.get("fused") or group.get("capturable")):
        return state
    return {
        name: value.to(parameter.device) if name in SCALARS and isinstance(value, torch.Tensor) else value
        for name, value in state.items()
    }


def _is_vector(name: str, value: Any, parameter: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == parameter.shape and name not in SCALARS


def as_alone(state: dict[str, Any], parameter: torch.Tensor) -> dict[str, Any]:
    """The state as an optimiser keeps it that updates the parameter itself: in its type, without a master."""
    return {
        name: value.to(parameter.dtype) if _is_vector(name, value, parameter) else value
        for name, value in state.items()
        if name != MASTER
    }


def load_wide(optimizer: Optimizer, state_dict: dict[str, Any], masters: bool, wide: bool) -> None:
    """After optimizer.load_state_dict(state_dict), which has cast all vectors to the types of their parameters: puts those
    back that are fp32 beside a parameter in 16 bits where updates are `wide`, and drops the master where there is to be
    none."""
    for group, saved in zip(optimizer.param_groups, state_dict["param_groups"]):
        for parameter, key in zip(group["params"], saved["params"]):
            state = state_dict["state"].get(key, {})
            for name, value in state.items():
                if wide and _is_vector(name, value, parameter) and value.dtype == torch.float32:
                    optimizer.state[parameter][name] = value.clone()
            if MASTER in state and not masters:
                del optimizer.state[parameter][MASTER]
