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
import tempfile
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
    from behaviours import models, registry, steps, gradients, optimisers, updates, data  # noqa: F401, I001
    from behaviours import watching, batch_norm, several, changes, checkpoints  # noqa: F401, I001

    return registry.ROWS


def table() -> str:
    return HEAD + "".join(f"| {row.what} | {row.verdict} | {row.theirs} |\n" for row in rows())


def run(begun: pathlib.Path, names: list[str]) -> int:
    """On every rank alike; after a failure the ranks may be out of step, so that the run ends. Each case that begins is a
    line of `begun`, with the rank's number as its suffix."""
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    cases = {row.case.__name__: row.case for row in rows()}
    with begun.with_suffix(f".{os.environ['RANK']}").open("w", encoding="utf-8", buffering=1) as file:
        for name in names:
            print(name, file=file)
            try:
                cases[name]()
            except BaseException:
                print(f"rank {os.environ['RANK']}: {name} failed", file=sys.stderr)
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
    torch.distributed.destroy_process_group()
    return 0


def launch(names: list[str]) -> str | None:
    """The case that failed. A rank may be one case ahead of the one that failed."""
    command = [sys.executable, "-B", "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    with tempfile.TemporaryDirectory() as folder:
        begun = pathlib.Path(folder) / "begun"
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run([*command, str(HERE), str(begun), *names], env=environment, check=False)
        if ended.returncode == 0:
            return None
        counts = [len(file.read_text(encoding="utf-8").splitlines()) for file in pathlib.Path(folder).glob("begun.*")]
        return names[max(1, min(counts, default=1)) - 1]


def run_all(names: list[str]) -> int:
    """After a failure new ranks run what comes after it, so that each failure is seen."""
    failed = []
    rest = names
    while rest and (culprit := launch(rest)):
        failed.append(culprit)
        rest = rest[rest.index(culprit) + 1 :]
    print(f"{len(names) - len(failed)} behaviours hold" + "".join(f"\n{name} does not hold" for name in failed))
    return 1 if failed else 0


def main(arguments: list[str]) -> int:
    if "RANK" in os.environ:
        faulthandler.dump_traceback_later(300, exit=True)  # of all behaviours, on a busy machine
        return run(pathlib.Path(arguments[0]), arguments[1:])
    if arguments[:1] == ["--write"]:
        pathlib.Path(arguments[1]).write_text(table(), encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") != table():
        print(f"{PAGE} is not what --write makes of the tests", file=sys.stderr)
        return 1
    if len(rows()) < 60:
        print("fewer than 60 behaviours", file=sys.stderr)
        return 1
    return run_all(arguments or [row.case.__name__ for row in rows()])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
