"""What pyproject.toml asks of scikit-build-core: what a wheel requires.

A wheel needs the release of PyTorch that it was compiled with, whose binary interface it uses.
"""

import pathlib
import sys
from collections.abc import Mapping

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import find_torch  # noqa: E402


def dynamic_metadata(settings: Mapping[str, object], project: Mapping[str, object]) -> dict[str, list[str]]:
    try:
        version = find_torch.find()[1]
    except find_torch.NotFound as missing:
        raise RuntimeError(
            f"{sys.executable} {missing}; DeAR is compiled against the PyTorch that is installed: run "
            "`pip install torch` first, with the same python"
        ) from None
    release = ".".join(version.split(".")[:2])
    return {"dependencies": [f"torch=={release}.*", "greenlet>=3"]}


def dynamic_wheel(settings: Mapping[str, object]) -> dict[str, bool]:
    return {"dependencies": True}  # of the machine that builds the wheel, not of the sources
