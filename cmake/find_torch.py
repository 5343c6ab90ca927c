"""python find_torch.py [MAJOR.MINOR]: where the PyTorch of this python lies.

Prints "FOLDER|VERSION" (FOLDER/lib holds libtorch.so). Without a PyTorch that DeAR can use, or with another release than
the one demanded, prints on standard error what this python has instead, to stand behind its name, and exits with 1.
Imports nothing of PyTorch, which would take seconds.
"""

import importlib.util
import pathlib
import re
import sys

LEAST = (2, 9)


def main() -> None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        sys.exit("has no PyTorch")
    folder = pathlib.Path(spec.origin).resolve().parent
    try:
        version = re.search(r"__version__ = '([^']+)'", (folder / "version.py").read_text())[1]
        release = tuple(int(part) for part in version.split(".")[:2])
    except (OSError, TypeError, ValueError):
        sys.exit(f"has a PyTorch in {folder} that does not say its version")
    if release < LEAST:
        sys.exit(f"has PyTorch {version}, and DeAR needs {LEAST[0]}.{LEAST[1]} or later")
    if len(sys.argv) > 1 and release != tuple(int(part) for part in sys.argv[1].split(".")):
        sys.exit(f"has PyTorch {version}, and this DeAR was compiled with {sys.argv[1]}")
    for library in ("torch", "torch_cpu", "c10"):
        if not (folder / "lib" / f"lib{library}.so").exists():
            sys.exit(f"has PyTorch {version} without {folder}/lib/lib{library}.so")
    print(f"{folder}|{version}", end="")


main()
