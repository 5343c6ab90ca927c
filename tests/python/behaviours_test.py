"""The behaviours that the tests of DDP check, on two ranks: as DDP has them, or refused with a reason.

python behaviours_test.py                 all cases, under torchrun
python behaviours_test.py NAME...         these cases
python behaviours_test.py --write FILE    the table of docs/ddp_behaviours.md
"""

from __future__ import annotations

import faulthandler
import os
import pathlib
import subprocess
import sys
import traceback

HERE = pathlib.Path(__file__).resolve()
PAGE = HERE.parents[2] / "docs" / "ddp_behaviours.md"
HEAD = """# What DDP does, and DeAR

Each row is a behaviour that PyTorch's own tests of `DistributedDataParallel` (2.13) check. "as DDP": DeAR's test of the row, on two
ranks, demands the same, against plain PyTorch over the union of the batches. The table is written by
`python tests/python/behaviours_test.py --write docs/ddp_behaviours.md`, from the tests that it names.

| behaviour | DeAR | tests of PyTorch |
|---|---|---|
"""


def rows():
    # They register, in this order.
    from behaviours import models, registry, steps, gradients, optimisers, data  # noqa: F401, I001
    from behaviours import watching, batch_norm, several, changes, checkpoints  # noqa: F401, I001

    return registry.ROWS


def table() -> str:
    return HEAD + "".join(f"| {row.what} | {row.verdict} | {row.theirs} |\n" for row in rows())


def run(names: list[str]) -> int:
    """On every rank alike; after a failure the ranks may be out of step, so that the run ends."""
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    cases = [row.case for row in rows() if not names or row.case.__name__ in names]
    for case in cases:
        try:
            case()
        except BaseException:
            print(f"rank {os.environ['RANK']}: {case.__name__} failed", file=sys.stderr)
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    if os.environ["RANK"] == "0":
        print(f"{len(cases)} behaviours hold")
    torch.distributed.destroy_process_group()
    return 0


def main(arguments: list[str]) -> int:
    if "RANK" in os.environ:
        faulthandler.dump_traceback_later(100, exit=True)
        return run(arguments)
    if arguments[:1] == ["--write"]:
        pathlib.Path(arguments[1]).write_text(table(), encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") != table():
        print(f"{PAGE} is not what --write makes of the tests", file=sys.stderr)
        return 1
    if len(rows()) < 60:
        print("fewer than 60 behaviours", file=sys.stderr)
        return 1
    launch = [sys.executable, "-B", "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([*launch, str(HERE), *arguments], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
