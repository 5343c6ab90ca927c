"""A job whose ranks are killed, one after another, and come back: what it loses, and whether it learns the same.

    PYTHONPATH=build/release/python python bench/faults/elastic.py build/release/dear --ranks 6 --every 30 --for 300

Trains the digits of scikit-learn, once undisturbed on as many ranks and once under `dear launch --elastic` with a random rank killed
every so many seconds. With --hosts N there is a launcher for each host, all of them here, and every third time the launcher of a
host that does not lead is killed, and started again two seconds later. A counter for each sample is trained, too: one use of a sample moves it by one, so it says how often it was
used. Prints for each kill how long no step ended and how many steps were lost, and the losses of both runs. The exit code is 1
where a sample was not used once an epoch, losses differ by more than --tolerance, or a kill cost more than one step or --most seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time


def train(options: argparse.Namespace) -> None:
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    import dear

    inputs, labels = load_digits(return_X_y=True)
    whole = len(inputs) // options.batch * options.batch  # all batches are equal, so every use counts as much
    x, y = torch.tensor(inputs[:whole], dtype=torch.float32) / 16, torch.tensor(labels[:whole])
    torch.manual_seed(1)

    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 10))
            self.uses = nn.Parameter(torch.zeros(len(x), dtype=torch.float64))

        def forward(self, indices: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(self.net(x[indices]), y[indices]) + (self.uses[indices]).mean()

    model = Counted()
    weights = list(model.net.parameters())
    optimizer = torch.optim.SGD([{"params": weights, "lr": 0.1, "momentum": 0.9}, {"params": [model.uses], "lr": 1.0}])
    run = dear.Elastic(
        model,
        optimizer,
        samples=len(x),
        batch=options.batch,
        epochs=options.epochs,
        seed=5,
        policy=options.policy,
        checkpoints=os.path.join(options.folder, "saves") if options.every_steps else "",
        every=max(1, options.every_steps),
    )
    log = open(os.path.join(options.folder, f"log-{os.getpid()}"), "a", buffering=1)
    for step in run:
        before = run.used
        with step as indices:
            run.model(indices).backward()
            optimizer.step()
            time.sleep(options.pause)
        if run.used > before and run.model.rank == 0:
            log.write(f"{time.time()} {run.steps} {run.used - before} {run.model.world_size}\n")
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model.net(x), y).item()
    if run.model.rank == 0:
        found = {"loss": loss, "steps": run.steps, "uses": (-model.uses.detach()).tolist()}
        pathlib.Path(options.folder, "result.json").write_text(json.dumps(found))


def ranks_of(launcher: int) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = pathlib.Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            if int(stat[1]) == launcher and stat[0] != "Z" and "python" in os.readlink(f"/proc/{name}/exe"):
                found.append(int(name))
        except OSError:
            continue
    return sorted(found)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def steps_in(folder: str) -> list[tuple[float, int, int]]:
    """Time, step and ranks of each step that ended, in order."""
    lines = [line.split() for path in pathlib.Path(folder).glob("log-*") for line in path.read_text().splitlines()]
    return sorted((float(at), int(step), int(ranks)) for at, step, _, ranks in lines)


def job(
    options: argparse.Namespace, kills: bool
) -> tuple[dict[str, object], list[float], list[tuple[float, int, int]], str]:
    with tempfile.TemporaryDirectory() as folder:
        own = [sys.executable, "-B", os.path.abspath(__file__), options.dear, "--folder", folder]
        for name in ("batch", "epochs", "pause", "policy", "every_steps"):
            own += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
        command = [options.dear, "launch", "--elastic", f"{options.least}:{options.ranks}", "--restarts", "1000"]
        if options.hosts > 1:
            here = str(options.ranks // options.hosts)
            command += ["-n", here, "--hosts", str(options.hosts), "--meet", f"127.0.0.1:{free_port()}"]
        errors = open(os.path.join(folder, "errors"), "w+")

        def start() -> subprocess.Popen[bytes]:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            return subprocess.Popen(
                [*command, "--", *own], stdout=errors, stderr=errors, env=environment, start_new_session=True
            )

        process = start()
        time.sleep(1 if options.hosts > 1 else 0)  # it leads
        others = [start() for _ in range(options.hosts - 1)]
        choice, killed = random.Random(options.seed), []
        while process.poll() is None:
            if not kills or not steps_in(folder):
                time.sleep(0.1)
                continue
            until = time.time() + options.every
            while time.time() < until and process.poll() is None:
                time.sleep(0.1)
            alive = [rank for one in (process, *others) for rank in ranks_of(one.pid)]
            if process.poll() is None and len(alive) > options.least and len(killed) * options.every < options.during:
                killed.append(time.time())
                if others and len(killed) % 3 == 0:
                    lost = choice.randrange(len(others))
                    others[lost].kill()
                    others[lost].wait()
                    time.sleep(2)
                    others[lost] = start()
                else:
                    os.kill(choice.choice(alive), signal.SIGKILL)
        for one in others:
            if one.wait(60) != 0:
                sys.exit(f"the launcher of another host ended with {one.returncode}")
        errors.seek(0)
        said = errors.read()
        if process.returncode != 0:
            sys.exit(f"the job ended with {process.returncode}:\n{said}")
        return json.loads(pathlib.Path(folder, "result.json").read_text()), killed, steps_in(folder), said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dear")
    parser.add_argument("--ranks", type=int, default=6)
    parser.add_argument("--hosts", type=int, default=1, help="each with as many of the ranks")
    parser.add_argument("--least", type=int, default=1)
    parser.add_argument("--every", type=float, default=30, help="seconds between two kills")
    parser.add_argument("--for", dest="during", type=float, default=300, help="seconds in which ranks are killed")
    parser.add_argument("--batch", type=int, default=120)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--pause", type=float, default=0.2, help="seconds that each step sleeps")
    parser.add_argument("--policy", default="wfbp")
    parser.add_argument("--every-steps", type=int, default=0, help="steps between checkpoints; 0 for none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--most", type=float, default=5.0, help="seconds that a kill may cost")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hosts < 1 or options.ranks % options.hosts != 0:
        parser.error(f"--ranks {options.ranks} cannot be shared by {options.hosts} hosts: give a multiple")
    if options.folder:
        return train(options)
    options.pause, pause = 0.0, options.pause
    calm, _, _, _ = job(options, kills=False)
    options.pause = pause
    wild, killed, steps, said = job(options, kills=True)
    wrong = []
    for name, result in (("undisturbed", calm), ("with kills", wild)):
        uses = result["uses"]
        assert isinstance(uses, list)
        off = max(abs(one * options.batch - options.epochs) for one in uses)
        print(f"{name:12} loss {result['loss']:.8f}, {result['steps']} steps")
        if off > 1e-6:
            wrong.append(f"{name}: a sample was used {off:.3f} times more or less often than once an epoch")
    # A step is lost that had ended, and is made again.
    print("kill  ranks before, after  no step for  steps lost")
    for number, at in enumerate(killed):
        before = [one for one in steps if one[0] <= at]
        after = [one for one in steps if one[0] > at]
        if not before or not after:
            continue
        seconds, lost = after[0][0] - at, max(0, before[-1][1] + 1 - after[0][1])
        print(f"{number + 1:4}  {before[-1][2]:5} {after[0][2]:14} {seconds:11.2f} s {lost:10}")
        if seconds > options.most or lost > 1:
            wrong.append(f"kill {number + 1} cost {seconds:.2f} s and {lost} steps")
    print(
        f"{len(killed)} kills, {len(re.findall('takes its place', said))} processes and {len(re.findall('has come', said))} hosts came back, load {os.getloadavg()[0]:.1f}"
    )
    difference = abs(float(str(calm["loss"])) - float(str(wild["loss"])))
    print(f"losses differ by {difference:.1e}")
    if difference > options.tolerance:
        wrong.append(f"losses differ by {difference:.1e}")
    if "restart " in said:
        wrong.append("the job was started again as a whole")
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
