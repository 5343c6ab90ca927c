"""The command `dear` of the package, started without importing the package: PyTorch would take seconds."""

import importlib.util
import os
import pathlib
import sys


def program() -> pathlib.Path:
    """The file of the command; FileNotFoundError where the package was installed without it."""
    spec = importlib.util.find_spec("dear")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    for folder in folders:
        file = pathlib.Path(folder) / "bin" / "dear"
        if file.exists():
            return file
    raise FileNotFoundError(
        f"there is no bin/dear in {', '.join(folders) or 'a package dear'}: install the package anew"
    )


def main() -> None:
    """Becomes the command, with the arguments of this process. Signals and the exit code are the command's own."""
    try:
        file = program()
    except FileNotFoundError as missing:
        sys.exit(f"dear: {missing}")
    os.execv(file, ["dear", *sys.argv[1:]])
