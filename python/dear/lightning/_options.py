"""What a strategy takes for dear.distribute()."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any, Optional

from lightning.fabric.plugins.collectives.torch_collective import default_pg_timeout

import dear
from dear._C import ConfigError

# What the frameworks choose, and what a strategy has a word of its own for.
_NOT_HERE = frozenset({"model", "optimizer", "process_group", "timeout"})
NAMES = tuple(name for name in inspect.signature(dear.distribute).parameters if name not in _NOT_HERE)

# What takes the place of DistributedDataParallel's own.
_REMEDIES = {
    "find_unused_parameters": "leave it out, for parameters that are not used are no error with DeAR",
    "static_graph": "leave it out, for DeAR learns each step anew",
    "gradient_as_bucket_view": "leave it out, for gradients always lie in buckets",
    "bucket_cap_mb": 'say fusion="25MB"',
    "ddp_comm_hook": 'say how gradients are to travel by compression="bf16", for example',
    "ddp_comm_state": 'say how gradients are to travel by compression="bf16", for example',
    "ddp_comm_wrapper": 'say how gradients are to travel by compression="bf16", for example',
    "model_averaging_period": "say rounds=dear.LocalSGD(...)",
    "broadcast_buffers": 'say buffers="forward" or buffers="construction"',
}


def options_of(given: dict[str, Any], timeout: Optional[timedelta], strategy: str) -> dict[str, Any]:
    """The arguments for distribute(); ConfigError for a name that it has not."""
    for name in given:
        if name not in NAMES:
            remedy = _REMEDIES.get(name, f"it takes what dear.distribute() takes: {', '.join(NAMES)}")
            raise ConfigError(f"{strategy} has no argument '{name}': {remedy}")
    return dict(given) if timeout is None else {**given, "timeout": timeout.total_seconds()}


def timeout_of_group(timeout: Optional[timedelta]) -> timedelta:
    return default_pg_timeout if timeout is None else timeout
