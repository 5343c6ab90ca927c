"""What `dear diagnose` makes of jobs that fail: runs of each kind of fault, with culprit and cause compared.

    PYTHONPATH=build/release/python python bench/faults/diagnosis.py build/release/dear --runs 20

Each run starts 3 or 4 ranks under `dear launch --record`, whose culprit is drawn; in every second run the record of one rank, drawn
too, is removed before the diagnosis. A table says how many of each kind were right; the exit code is 1 below --least.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

# By kind: the causes that are right.
KINDS = {
    "raises in forward": {"failed"},
    "raises after backward": {"failed"},
    "raises in a thread": {"failed"},
    "killed": {"killed"},
    "killed in a save": {"killed"},
    "aborts": {"killed"},
    "exits with 3": {"exited"},
    "returns early": {"left", "exited"},
    "leaves within a step": {"left"},
    "sleeps": {"late"},
    "loops": {"late"},
    "stopped": {"stopped"},
    "another collective": {"mismatch", "failed"},
    "NaN in a gradient": {"failed"},
    "sleeps before its first step": {"late"},
}


def program(kind: str, culprit: int) -> None:
    if kind != "raises in a thread":
        return train(kind, culprit)
    thread = threading.Thread(target=train, args=(kind, culprit))
    thread.start()
    thread.join()


def meet() -> None:
    """Returns when all ranks have come here: imports take longer on some than the training's timeout."""
    folder = pathlib.Path(os.environ["SAVES"])
    (folder / f"here-{os.environ['RANK']}").touch()
    while len(list(folder.glob("here-*"))) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.02)


def train(kind: str, culprit: int) -> None:
    import torch
    from torch import nn

    import dear

    meet()
    net = nn.Sequential(*[nn.Linear(48, 48) for _ in range(3)])
    check = "error" if kind.startswith("NaN") else ""
    model, optimizer = dear.distribute(
        net,
        torch.optim.SGD(net.parameters(), lr=0.01),
        timeout=float(os.environ.get("TIMEOUT", "3")),
        fusion="16KiB",
        check_gradients=check,
    )
    mine = model.rank == culprit
    for step in range(12):
        now = step == 6 or (step == 0 and kind == "sleeps before its first step")
        if now and mine and kind == "raises in forward":
            raise ValueError("poison")
        loss = model(torch.randn(4, 48)).square().mean()
        if now and mine and kind.startswith("NaN"):
            loss = loss * float("nan")
        loss.backward()
        if now and mine:
            if kind in ("raises after backward", "raises in a thread"):
                raise ValueError("poison")
            if kind == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if kind == "aborts":
                os.abort()
            if kind == "exits with 3":
                os._exit(3)
            if kind == "leaves within a step":
                sys.exit(0)
            if kind.startswith("sleeps"):
                time.sleep(60)
            if kind == "loops":
                while True:
                    pass
            if kind == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
        optimizer.step()
        if now and kind == "killed in a save" and mine:
            threading.Timer(0.02, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        if now and kind == "killed in a save":
            dear.save(os.path.join(os.environ["SAVES"], "a.pt"), model)
            if mine:
                time.sleep(1)
        if now and mine and kind == "returns early":
            return
        if now and mine and kind == "another collective":
            model.regroup("8KiB")


def diagnosed(dear: str, kind: str, draw: random.Random, hides: bool) -> tuple[bool, str]:
    ranks = draw.choice((3, 4))
    culprit = draw.randrange(ranks)
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "record")
        command = [dear, "launch", "-n", str(ranks), "--grace", "2s", "--record", record, "--"]
        subprocess.run(
            [*command, sys.executable, "-B", __file__, dear, "--program", kind, "--culprit", str(culprit)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "SAVES": folder},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=100,
        )
        hidden = draw.randrange(ranks) if hides else -1
        if hides:
            pathlib.Path(record, f"rank-{hidden}.record").unlink(missing_ok=True)
        told = subprocess.run([dear, "diagnose", record, "--json"], capture_output=True, text=True, check=True)
        found = json.loads(told.stdout)
        right = found["cause"] in KINDS[kind] and found["culprits"] == [culprit]
        what = f"rank {culprit} of {ranks}, record of {hidden} hidden: {found['cause']} of {found['culprits']}: {found['what']}"
        return right, what


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dear")
    parser.add_argument("--runs", type=int, default=20, help="of each kind")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--least", type=float, default=0.98)
    parser.add_argument("--timeout", type=float, default=3, help="of the training, in seconds; more on a busy machine")
    parser.add_argument("--program", help=argparse.SUPPRESS)
    parser.add_argument("--culprit", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program:
        return program(options.program, options.culprit)
    os.environ["TIMEOUT"] = str(options.timeout)
    draw = random.Random(options.seed)
    right = runs = 0
    for kind in options.kinds.split(","):
        wrong = []
        for run in range(options.runs):
            is_right, what = diagnosed(options.dear, kind, draw, run % 2 == 1)
            if not is_right:
                wrong.append(what)
        right += options.runs - len(wrong)
        runs += options.runs
        print(f"{kind:30} {options.runs - len(wrong)} of {options.runs}", flush=True)
        for what in wrong:
            print(f"    {what}", flush=True)
    print(f"{right} of {runs} right: {right / runs:.1%}")
    sys.exit(right < options.least * runs)


if __name__ == "__main__":
    main()
