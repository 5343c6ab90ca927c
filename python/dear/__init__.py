"""DeAR: data-parallel training whose communication is hidden under the backward and the next forward pass."""

import torch

from . import _torch_release
from ._version import __version__, torch_release

_torch_release.check(torch.__version__, torch_release)

from ._C import (  # noqa: E402  (the check says more than the loader would)
    ConfigError,
    Error,
    Group,
    MismatchError,
    ScheduleError,
    TimeoutError,
    TransportError,
    init,
    training_policies,
)
from ._distribute import DataParallel, distribute  # noqa: E402
from ._trace import Trace  # noqa: E402

__all__ = [
    "ConfigError",
    "DataParallel",
    "Error",
    "Group",
    "MismatchError",
    "ScheduleError",
    "TimeoutError",
    "Trace",
    "TransportError",
    "__version__",
    "distribute",
    "init",
    "training_policies",
]
