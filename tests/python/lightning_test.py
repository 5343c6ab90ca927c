"""DeAR inside Lightning, on two ranks: what Lightning's own tests of DDPStrategy check, with DDP beside it.

python lightning_test.py DEAR               all cases
python lightning_test.py DEAR NAME...       these cases
python lightning_test.py --write FILE       the table of docs/lightning.md
"""

from __future__ import annotations

import faulthandler
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta

HERE = pathlib.Path(__file__).resolve()
PAGE = HERE.parents[2] / "docs" / "lightning.md"
HEAD = "| behaviour | DeAR | tests of Lightning | case |\n|---|---|---|---|\n"
GROUPS = ("gloo", "cpu:dear")


def rows():
    # They register, in this order.
    from of_lightning import registry, fits, steps, files, loops, groups  # noqa: F401, I001

    return registry.ROWS


def table() -> str:
    return HEAD + "".join(f"| {row.what} | {row.verdict} | {row.theirs} | `{row.case.__name__}` |\n" for row in rows())


def with_table(page: str) -> str:
    return page[: page.index("| behaviour | DeAR |")] + table()


# ---- on a rank


def in_a_world_of_one(act: Callable[[], None]) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    ranks = {name: os.environ[name] for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")}
    os.environ.update(dict.fromkeys(ranks, "1"))
    act()
    os.environ.update(ranks)
    dist.destroy_process_group()


def run(names: list[str]) -> int:
    """On every rank alike. A case that failed on some ranks is told to all, and the next one begins."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows()  # registers all before one is imported by itself
    for package in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(package).setLevel(logging.ERROR)
    from of_lightning import files
    from of_lightning.registry import FOLDER, RANK, WORLD

    table_is_right = (
        RANK > 0 or bool(names) or PAGE.read_text(encoding="utf-8") == with_table(PAGE.read_text(encoding="utf-8"))
    )
    failed = [] if table_is_right else [f"{PAGE} is not what --write makes"]
    errors: list[str] = []  # of this rank; told at the end too, after all that Lightning says
    count = 0
    if RANK == 0 and (not names or files.of_one_rank_on_two.__name__ in names):
        in_a_world_of_one(files.save_alone)
    for group in GROUPS:
        dist.init_process_group(
            group, f"file://{FOLDER}/{group}", timeout=timedelta(seconds=60), rank=RANK, world_size=WORLD
        )
        # Whatever a case does to the default one; it waits for a rank whose case ends by its own timeout.
        told = dist.new_group(backend="gloo", timeout=timedelta(seconds=200))
        for row in rows():
            name = row.case.__name__
            if row.group != group or (names and name not in names):
                continue
            count += 1
            error = None
            try:
                row.case()
            except BaseException:
                error = traceback.format_exc()
                errors.append(f"rank {RANK}: {name} failed\n{error}")
                print(errors[-1], file=sys.stderr, flush=True)
            everyone: list[str | None] = [None] * WORLD
            dist.all_gather_object(everyone, error, group=told)
            if any(everyone):
                failed.append(name)
        dist.destroy_process_group()
    print("".join(errors), end="", file=sys.stderr, flush=True)
    if not names and RANK == 0:
        in_a_world_of_one(files.alone)
    if RANK == 0:
        print(f"{count - len(failed)} behaviours hold" + "".join(f"\n{name} does not hold" for name in failed))
    return 1 if failed or count < (1 if names else 30) else 0


# ---- the test


def environment(rank: int, folder: str) -> dict[str, str]:
    """What torchrun tells a process, of which Lightning then knows that it need not start any."""
    told = {"TORCHELASTIC_RUN_ID": "test", "GROUP_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1", "DEAR_TEST_FOLDER": folder}
    return {**os.environ, **told, **ranks}


def run_all(names: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-B", str(HERE), *names]
        ranks = [subprocess.Popen(command, cwd=folder, env=environment(rank, folder)) for rank in range(2)]
        return max(abs(rank.wait()) for rank in ranks)


def says(code: str) -> str:
    told = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=False)
    return told.stdout + told.stderr


def imports_nothing() -> int:
    """`import dear` leaves frameworks alone, and where one is missing a sentence says so."""
    code = "import sys, dear; print({*sys.modules} & {'lightning', 'accelerate', 'peft', 'transformers'} or 'none')\n"
    for name, package in (("lightning", "lightning"), ("huggingface", "accelerate")):
        code += f"sys.modules['{package}'] = None\ntry:\n import dear.{name}\nexcept ImportError as e: print(e)\n"
    told = says(code)
    wanted = "none\ndear.lightning needs the package lightning: pip install lightning==2.6.6\n"
    wanted += "dear.huggingface needs the package accelerate: pip install accelerate==1.15.0\n"
    if told != wanted:
        print(told, file=sys.stderr)
    return 0 if told == wanted else 1


def main(arguments: list[str]) -> int:
    if "DEAR_TEST_FOLDER" in os.environ:
        faulthandler.dump_traceback_later(300, exit=True)
        return run(arguments)
    if arguments[:1] == ["--write"]:
        page = pathlib.Path(arguments[1])
        page.write_text(with_table(page.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    return imports_nothing() or run_all(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
