"""Runs the steps of steps.py on a GPU, or on the stub device, and writes what they found. See scripts/gpu_check."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import building
import report
import sessions
from sessions import Outcome
from steps import BUILD, STEPS, Step

HERE = Path(__file__).resolve().parent
LIBRARIES = {"stub": ("stub",), "cuda": ("gloo", "nccl")}


def fail(sentence: str) -> NoReturn:
    print(f"scripts/gpu_check: {sentence}", file=sys.stderr)
    sys.exit(2)


def seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of seconds above 0")
    return value


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/gpu_check",
        description="Builds the package, trains on the GPU in many ways, and says what held. Without a GPU the same steps run on "
        "the stub device. Exit code: 0 where no step failed, 1 where one did, 2 for wrong options.",
    )
    parser.error = fail  # type: ignore[method-assign, assignment]
    parser.add_argument("--device", choices=list(LIBRARIES), help="default: cuda where PyTorch has one, else stub")
    parser.add_argument("--build", type=Path, metavar="FOLDER", help="a build with the package; nothing is built then")
    parser.add_argument("--build-seconds", type=seconds, default=180, help="what the build may take (default: 180)")
    parser.add_argument("--seconds", type=seconds, default=300, help="what the steps may take together (default: 300)")
    parser.add_argument("--steps", nargs="+", metavar="NAME", help="these alone")
    parser.add_argument("--quick", action="store_true", help="small models: for a test of the check itself")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", default=building.ROOT / "build/gpu_check", help="for result.json and logs"
    )
    also = parser.add_mutually_exclusive_group()
    also.add_argument("--list", action="store_true", help="says what steps there are")
    also.add_argument("--pack", action="store_true", help="gathers what a machine without a network lacks to build")
    also.add_argument(
        "--write-page",
        nargs="?",
        const="",
        metavar="RESULT.json",
        help="keeps a result, and makes its part of docs/gpu.md",
    )
    also.add_argument("--check-page", action="store_true", help="whether docs/gpu.md shows the result that is kept")
    options = parser.parse_args(arguments)
    unknown = set(options.steps or ()) - {step.name for step in STEPS}
    if unknown:
        fail(f"there is no step '{sorted(unknown)[0]}': scripts/gpu_check --list names them")
    return options


def find_device() -> str:
    found = subprocess.run(
        [sys.executable, "-c", "import torch; print('cuda' if torch.cuda.is_available() else 'stub')"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.returncode != 0:
        fail(f"{sys.executable} cannot import PyTorch: install it there, or name another by DEAR_PYTHON")
    return found.stdout.strip()


_ABOUT = """
import json, sys, torch
about = {"PyTorch": torch.__version__, "Python": sys.version.split()[0]}
if sys.argv[1] == "cuda":
    about |= {"GPU": torch.cuda.get_device_name(0), "GPUs": torch.cuda.device_count(), "CUDA": torch.version.cuda}
    about["NCCL"] = ".".join(map(str, torch.cuda.nccl.version()))
print(json.dumps(about))
"""


def about_machine(device: str) -> dict[str, Any]:
    found = subprocess.run([sys.executable, "-c", _ABOUT, device], capture_output=True, text=True, check=False)
    about: dict[str, Any] = {"device": device, "date": time.strftime("%Y-%m-%d"), "commit": building.commit()}
    about |= {"machine": platform.machine(), "cores": os.cpu_count()}
    return about | (json.loads(found.stdout) if found.returncode == 0 else {"PyTorch": "cannot be asked"})


class Check:
    """One run of the steps on a device."""

    def __init__(self, options: argparse.Namespace, device: str, build: Path) -> None:
        self._options = options
        self._device = device
        self._build = build
        self._best = LIBRARIES[device][0]  # until the better one has been seen to work

    def run(self, steps: Sequence[Step]) -> Iterator[Outcome]:
        until = time.monotonic() + self._options.seconds
        left = list(steps)
        while left:
            if left[0].library not in ("", *LIBRARIES[self._device]):
                yield Outcome(left[0], "not here", f"it is for a device other than {self._device}")
                left.pop(0)
                continue
            library = self._library(left[0])
            together = [left.pop(0)]
            while left and left[0].ranks == together[0].ranks and self._library(left[0]) == library:
                together.append(left.pop(0))
            for number, outcome in enumerate(sessions.run(together, self._command, self._options.out, until), 1):
                outcome.library = library
                yield outcome
                if outcome.step.library == library and outcome.outcome == "passed":
                    self._best = library
                if outcome.hung and self._best != LIBRARIES[self._device][0]:
                    # What waits for ever over one library may not over the other: the rest is told apart so.
                    self._best = LIBRARIES[self._device][0]
                    left[:0] = together[number:]
                    break

    def _library(self, step: Step) -> str:
        if step.ranks == 1:
            return LIBRARIES[self._device][-1]
        return step.library or self._best

    def _command(self, steps: Sequence[Step], rank: int, report_to: int) -> tuple[list[str], dict[str, str]]:
        library = self._library(steps[0])
        session = {
            "device": self._device, "library": library, "build": str(self._build), "quick": self._options.quick,
            "folder": str(self._options.out / "files"), "report": report_to,
            "steps": [(step.name, step.check) for step in steps],
        }  # fmt: skip
        environment = dict(os.environ, OMP_NUM_THREADS="1", CUBLAS_WORKSPACE_CONFIG=":4096:8", PYTHONUNBUFFERED="1")
        # All ranks are on this host, and have the first GPU.
        environment |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "LOCAL_RANK": "0"}
        if self._device == "cuda" and library == "nccl" and steps[0].ranks > 1:
            # NCCL takes two ranks on one device for a mistake where they are on one host: here each says a host of its own.
            environment |= {
                "NCCL_HOSTID": f"rank-{rank}",
                "NCCL_P2P_DISABLE": "1",
                "NCCL_SHM_DISABLE": "1",
                "NCCL_NET": "Socket",
            }
        return [sys.executable, "-B", str(HERE / "rank_program.py"), json.dumps(session)], environment


def build(options: argparse.Namespace, device: str) -> tuple[Path, Outcome]:
    if options.build is not None:
        if not (options.build / "python/dear").is_dir():
            fail(f"there is no package dear in '{options.build}/python': build it, or leave out --build")
        return options.build.resolve(), Outcome(BUILD, "not here", f"--build names {options.build}")
    begin = time.monotonic()
    print("scripts/gpu_check: builds the package", file=sys.stderr)
    try:
        folder, took = building.build(device, options.out / "build.log", options.build_seconds)
    except building.CannotBuild as error:
        return building.BUILD, Outcome(BUILD, "failed", str(error), time.monotonic() - begin)
    return folder, Outcome(BUILD, "passed", seconds=took, figures={"cores": os.cpu_count()})


def main() -> None:
    options = read_options()
    try:
        if options.list:
            for step in (BUILD, *STEPS):
                print(f"{step.name:18} {step.shows}")
        elif options.pack:
            print(building.pack())
        elif options.check_page:
            if not report.page_is_current():
                fail("docs/gpu.md does not show what docs/gpu_check.json holds: run scripts/gpu_check --write-page")
        elif options.write_page is not None:
            report.write_page(Path(options.write_page) if options.write_page else None)
        else:
            sys.exit(check(options))
    except (building.CannotBuild, report.BadResult) as error:
        fail(str(error))


def check(options: argparse.Namespace) -> int:
    device = options.device or find_device()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(options.out / "files", ignore_errors=True)  # of the last run
    folder, built = build(options, device)
    outcomes = [built]
    machine = about_machine(device)
    chosen = [step for step in STEPS if not options.steps or step.name in options.steps]
    if built.outcome == "failed":
        outcomes += [Outcome(step, "not run", "there is no build") for step in chosen]
    else:
        for outcome in Check(options, device, folder).run(chosen):
            outcomes.append(outcome)
            print(
                f"{outcome.step.name}: {outcome.outcome} ({outcome.seconds:.1f} s) {outcome.why}",
                file=sys.stderr,
                flush=True,
            )
            _write(options.out, machine, outcomes)  # what is known so far, should the machine go
    _write(options.out, machine, outcomes)
    print(report.table(report.read(options.out / "result.json")))
    return 1 if any(outcome.outcome == "failed" for outcome in outcomes) else 0


def _write(folder: Path, machine: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    text = json.dumps(report.as_json(machine, outcomes), indent=1)
    (folder / "result.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
