"""python find_torch.py [MAJOR.MINOR]: where the PyTorch of this python lies.

Prints "FOLDER|VERSION" (FOLDER/lib holds libtorch.so). Without a PyTorch that DeAR can use, or with another release than
the one demanded, prints on standard error what this python has instead, to stand behind its name, and exits with 1.
Imports nothing of PyTorch, which would take seconds.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import pathlib
import re
import site
import sys
import sysconfig

LEAST = (2, 9)


class NotFound(Exception):
    """What a python has instead of a PyTorch that DeAR can use."""


def spec_of_torch() -> importlib.machinery.ModuleSpec | None:
    """Also where pip isolates a build: it hides the packages that are installed, among them the PyTorch to build with."""
    spec = importlib.util.find_spec("torch")
    if spec is not None:
        return spec
    for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}:
        site.addsitedir(folder)
    return importlib.util.find_spec("torch")


def find(demanded: str | None = None) -> tuple[pathlib.Path, str]:
    """The folder and the version of PyTorch; NotFound where it is missing or not of the release that is demanded."""
    spec = spec_of_torch()
    if spec is None or spec.origin is None:
        raise NotFound("has no PyTorch")
    folder = pathlib.Path(spec.origin).resolve().parent
    try:
        version = re.search(r"__version__ = '([^']+)'", (folder / "version.py").read_text())[1]
        release = tuple(int(part) for part in version.split(".")[:2])
    except (OSError, TypeError, ValueError):
        raise NotFound(f"has a PyTorch in {folder} that does not say its version") from None
    if release < LEAST:
        raise NotFound(f"has PyTorch {version}, and DeAR needs {LEAST[0]}.{LEAST[1]} or later")
    if demanded is not None and release != tuple(int(part) for part in demanded.split(".")):
        raise NotFound(f"has PyTorch {version}, and this DeAR was compiled with {demanded}")
    for library in ("torch", "torch_cpu", "c10"):
        if not (folder / "lib" / f"lib{library}.so").exists():
            raise NotFound(f"has PyTorch {version} without {folder}/lib/lib{library}.so")
    return folder, version


def main() -> None:
    try:
        folder, version = find(*sys.argv[1:2])
    except NotFound as missing:
        sys.exit(str(missing))
    print(f"{folder}|{version}", end="")


if __name__ == "__main__":
    main()
