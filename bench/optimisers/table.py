"""Optimisers of PyPI in eleven ways of use: DeAR on two ranks beside one process on all samples.

    PYTHONPATH=build/release/python python bench/optimisers/table.py build/release/dear [--only TEXT] [--jobs N] [--write docs/optimisers.md]

Installs the optimisers from PyPI into build/optimisers. For each one and each way: "same" where no parameter differs by more
than 2e-5 after six steps; "near" where one process itself gives two results that differ, by the order in which it adds, and DeAR
is as near; "refused" with DeAR's sentence; "differs" with by how much; or "-" with why PyTorch alone does not do it. Exit code: 0
where nothing differs, 1 where something does, 2 for wrong options.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build/optimisers"
TOLERANCE = 2e-5
RANKS = 2


def one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def distance(found: Any, expected: Any) -> float:
    return max(float((a.double() - b.double()).abs().max()) for a, b in zip(found, expected))


# ---- one rank: `table.py --worker NAME WAY...` prints a line of JSON for each way


def work(name: str, ways: list[str]) -> None:
    import torch
    from optimisers import all_of
    from ways import WAYS, NotForIt, Side

    import dear

    torch.set_num_threads(1)
    make, rank = all_of()[name], int(os.environ["RANK"])

    def tell(way: str, verdict: str, note: str = "") -> None:
        print(json.dumps({"way": way, "rank": rank, "verdict": verdict, "note": note}), flush=True)

    for way in ways:
        open_models: list[Any] = []

        def wrap(model: Any, optimizer: Any) -> tuple[Any, Any]:
            parallel, used = dear.distribute(model, optimizer, fusion="layer", timeout=30)
            open_models.append(parallel)
            return parallel, used

        try:
            expected = WAYS[way](Side(make, rank, RANKS, None))
        except NotForIt as error:
            tell(way, "-", str(error))
            continue
        except Exception as error:
            tell(way, "-", one_line(error))
            continue
        if not all(torch.isfinite(tensor).all() for tensor in expected):
            tell(way, "-", "it diverges")
            continue
        try:
            found = WAYS[way](Side(make, rank, RANKS, wrap))
        except (dear.ConfigError, dear.ScheduleError) as error:
            tell(way, "refused", one_line(error))
            sys.stdout.flush()
            os._exit(0)  # the rest in new processes
        except Exception as error:
            tell(way, "failed", one_line(error))
            os._exit(0)
        worst = distance(found, expected)
        if worst > TOLERANCE:
            other = WAYS[way](Side(make, rank, RANKS, None, in_parts=True))
            apart, in_parts = distance(other, expected), distance(found, other)
            if in_parts <= TOLERANCE or worst <= 2 * apart:
                tell(
                    way,
                    "near",
                    f"{worst:.1e} and {in_parts:.1e} from two orders of adding in one process, {apart:.1e} apart",
                )
                open_models[-1].close()
                continue
        moved = any(not torch.equal(a, b) for a, b in zip(expected, Side(make, rank, RANKS, None).model().parameters()))
        tell(way, "same" if worst <= TOLERANCE else "differs", f"{worst:.1e}" if moved else "nothing moved")
        open_models[-1].close()
    os._exit(0)


# ---- all of them


def install() -> None:
    from optimisers import PACKAGES

    installed = SITE / "installed"
    wanted = "\n".join(PACKAGES)
    if installed.exists() and installed.read_text() == wanted:
        return
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(SITE)]
    subprocess.run([*pip, *PACKAGES], check=True)
    installed.write_text(wanted)


def rows_of(command: str, name: str, ways: list[str]) -> dict[str, tuple[str, str]]:
    """By way: the verdict, and a note. A process that ends before its last way is followed by another one."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([environment.get("PYTHONPATH", ""), str(SITE)])
    found: dict[str, tuple[str, str]] = {}
    while left := [way for way in ways if way not in found]:
        program = [command, "launch", "-n", str(RANKS), "--", sys.executable, __file__, "--worker", name, *left]
        try:
            ended = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=300, check=False)
            said, errors = ended.stdout, ended.stderr
        except subprocess.TimeoutExpired:
            said, errors = "", "no end after 300 s"
        by_rank: dict[str, list[dict[str, Any]]] = {}
        for line in said.splitlines():
            text = line.partition("{")[2]
            if line.startswith("[") and '"way"' in text:
                told = json.loads("{" + text)
                by_rank.setdefault(told["way"], []).append(told)
        for way, told in by_rank.items():
            order = ["differs", "failed", "refused", "near", "same", "-"]
            worst = min(told, key=lambda one: order.index(one["verdict"]))
            if len(told) == RANKS or worst["verdict"] in ("refused", "failed"):
                found[way] = (worst["verdict"], worst["note"])
        if not any(way in found for way in left):
            found[left[0]] = ("failed", " ".join(errors.split())[-300:])
    return found


def page_of(table: dict[str, dict[str, tuple[str, str]]], ways: list[str]) -> str:
    import torch
    from optimisers import LEFT_OUT, PACKAGES

    same = sum(verdict == "same" for row in table.values() for verdict, _ in row.values())
    near = sum(verdict == "near" for row in table.values() for verdict, _ in row.values())
    refused = sum(verdict == "refused" for row in table.values() for verdict, _ in row.values())
    lines = [
        "# Optimisers of other packages",
        "",
        "Give any optimiser to `dear.distribute()`: one that DeAR does not know steps itself, on whole gradients, as under DDP",
        "([training in Python](python.md)). This table was written by `bench/optimisers/table.py`: each optimiser trains six steps",
        f"on two ranks, in each way, and beside it PyTorch {torch.__version__.split('+')[0]} in one process on the samples of both.",
        "",
        "`=`: no parameter differs by more than 2e-5. `≈`: the optimiser makes more than that of the last bit of a gradient, so that one",
        "process itself gives two results: with the gradient of all samples at once, and with the ranks' gradients added in their order.",
        "DeAR gives the second, or is as near to the first. `refused`: DeAR says in one sentence why not. `·`: PyTorch alone refuses the",
        "way, or diverges in it.",
        "",
        f"{len(table)} optimisers: {same} times the same, {near} times `≈`, {refused} times refused.",
        "",
        "| optimiser | " + " | ".join(ways) + " |",
        "|---|" + "---|" * len(ways),
    ]
    marks = {"same": "=", "near": "≈", "-": "·"}
    for name, row in table.items():
        lines.append(f"| `{name}` | " + " | ".join(marks.get(row[way][0], row[way][0]) for way in ways) + " |")
    sentences: dict[str, list[str]] = {}
    for name, row in table.items():
        for way, (verdict, note) in row.items():
            if verdict in ("refused", "differs", "failed"):
                sentences.setdefault(f"{verdict}: {note}", []).append(f"`{name}` ({way})")
    if sentences:
        lines += ["", "## What was said", ""]
        lines += [f"- {sentence} — {', '.join(places)}" for sentence, places in sentences.items()]
    lines += ["", "Left out: " + "; ".join(f"`{name}`, {why}" for name, why in LEFT_OUT.items()) + ".", ""]
    lines += ["Packages: " + ", ".join(f"`{package}`" for package in PACKAGES) + ".", ""]
    return "\n".join(lines)


def main() -> int:
    sys.path.insert(0, str(Path(__file__).parent))
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", help="path of dear")
    parser.add_argument("--only", default="", help="optimisers whose name has this text")
    parser.add_argument("--jobs", type=int, default=1, help="how many optimisers at once (default: %(default)s)")
    parser.add_argument("--write", type=Path, help="the page")
    options = parser.parse_args()
    install()
    sys.path.append(str(SITE))
    from optimisers import all_of
    from ways import WAYS

    ways = list(WAYS)
    names = [name for name in all_of() if options.only in name]
    if not names:
        parser.error(f"--only {options.only}: there is no such optimiser")
    table = {}
    pool = concurrent.futures.ThreadPoolExecutor(options.jobs)
    for name, row in zip(names, pool.map(lambda name: rows_of(options.command, name, ways), names)):
        table[name] = row
        words = [f"{way} {verdict} {note}" for way, (verdict, note) in table[name].items() if verdict != "same"]
        print(f"{name}: {sum(v == 'same' for v, _ in table[name].values())} same; " + "; ".join(words), flush=True)
    if options.write:
        options.write.write_text(page_of(table, ways))
    bad = [name for name, row in table.items() if any(v in ("differs", "failed") for v, _ in row.values())]
    print(f"{len(table)} optimisers; " + (f"not as one process: {', '.join(bad)}" if bad else "none differs"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
