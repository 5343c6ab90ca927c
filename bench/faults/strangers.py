"""Strangers at every port of a job: before its ranks meet, while they meet, and while they train.

    PYTHONPATH=build/release/python python bench/faults/strangers.py --dear build/release/dear --pairs 5

A job trains on ranks of this host. Its last rank is held back until the strangers have done what they do at a meeting, and is then
run in slices, so that a port is seen and reached which is open for a moment only. Jobs with strangers and without take turns.
A job is harmed where a rank does not end with code 0, or learns something else than without strangers: then the exit code is 1.
Jobs of "cpu:dear" do not count for it, since PyTorch's ports obey anybody; in those of "cpu:dear/local" nobody comes to these.
It runs as root: at the local socket of a meeting all strangers are another user, since others of the same user may do anything.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import datetime
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import statistics
import struct
import sys
import tempfile
import time
import zlib
from typing import Any

from stranger import KINDS
from watched_job import LAUNCHED, PATIENCE, Ran, after, free_port, record_packet, record_stream, run

BACKENDS = ("gloo", "gloo+secret", "shm", "cpu:dear/local", "cpu:dear", "elastic", "hosts")
TIMEOUT = 90.0  # seconds for each wait of a rank
NOTES = """

{ranks} ranks, {pairs} pairs of jobs with and without strangers in turns. Step: of rank 0, the ratio of the medians. Peak memory: of
rank 0 above that before it meets, the difference of the medians. Processor: of the strangers while ranks train, as a share of a core.
`cpu:dear`: TCP ports are those of PyTorch's TCPStore, open as long as the job, and of its Gloo; in `cpu:dear/local` nobody comes to
these. Nothing is replayed to the TCPStore that a rank said to it: it obeys anybody. Nothing of `dear launch --elastic` listens; `hosts`
are two launchers, of which one listens at --meet as long as the job."""


# ---- a rank


def mebibytes(name: str) -> float:
    line = next(line for line in open("/proc/self/status") if line.startswith(name))
    return int(line.split()[1]) / 1024


def train(folder: pathlib.Path, backend: str, steps: int, width: int) -> None:
    import torch
    from torch import nn

    import dear

    if backend not in LAUNCHED:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: ends with the bench
    rank, ranks, batch = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), 64
    torch.set_num_threads(1)
    torch.manual_seed(1)
    net: Any = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(width, width), nn.Tanh())])
    optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    x = torch.randn(batch * ranks, width)
    (folder / f"here-{rank}.new").write_text(str(os.getpid()))
    os.rename(folder / f"here-{rank}.new", folder / f"here-{rank}")
    given_up = after(PATIENCE)
    while not (folder / f"go-{rank}").exists():
        if given_up():
            raise TimeoutError("the bench has ended")
        time.sleep(0.01)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak is that of now on
    memory = mebibytes("VmRSS")
    ends, losses = [time.perf_counter()], []

    def step(model: Any, mine: Any) -> None:
        optimizer.zero_grad()
        loss = (model(mine) - mine).square().mean()
        loss.backward()
        optimizer.step()
        ends.append(time.perf_counter())
        losses.append(loss.item())
        if len(ends) == 4:
            (folder / f"met-{rank}").touch()

    if backend in LAUNCHED:
        run = dear.Elastic(net, optimizer, samples=len(x), batch=len(x), epochs=steps, fusion="layer", timeout=TIMEOUT)
        for one in run:
            with one as indices:
                step(run.model, x[indices])
    else:
        if backend.startswith("cpu:dear"):
            torch.distributed.init_process_group("cpu:dear", timeout=datetime.timedelta(seconds=TIMEOUT))
            model: Any = nn.parallel.DistributedDataParallel(net)
        else:
            group = dear.init(backend=backend.partition("+")[0], timeout=TIMEOUT)
            model, optimizer = dear.distribute(net, optimizer, process_group=group, fusion="layer", timeout=TIMEOUT)
        for _ in range(steps):
            step(model, x[batch * rank : batch * (rank + 1)])
    digest = zlib.crc32(struct.pack(f"{len(losses)}d", *losses))
    if not backend.startswith("cpu:dear") and backend not in LAUNCHED:
        model.synchronize()
    for parameter in net.parameters():
        digest = zlib.crc32(parameter.detach().numpy().tobytes(), digest)
    took = [after - before for before, after in zip(ends[10:], ends[11:])]
    found = {"digest": f"{digest:08x}", "step": statistics.median(took), "peak": mebibytes("VmHWM") - memory}
    (folder / f"result-{rank}").write_text(json.dumps(found))
    if backend.startswith("cpu:dear"):
        torch.distributed.destroy_process_group()


# ---- the bench


def table(options: argparse.Namespace, rows: list[dict[str, Any]]) -> str:
    lines = [
        "| job | strangers | jobs harmed | connections before, at, after | half-open at a time | step | peak memory | their processor |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    ports: dict[tuple[str, str], collections.Counter[str]] = {}
    for row in rows:
        came: collections.Counter[str] = collections.Counter()
        for about, count in row["counts"].items():
            if about.count("/") >= 2:
                label, phase, how = about.rsplit("/", 2)
                of_port = ports.setdefault((row["backend"], label), collections.Counter())
                of_port[f"{phase} {how}"] += count
                came[phase] += count if how == "came" else 0
        for label, phases in row["seen"].items():
            for phase in phases:
                ports.setdefault((row["backend"], label), collections.Counter())[f"open {phase}"] += 1
        lines.append(
            f"| {row['backend']} | {row['kind']} | {len(row['harmed'])} of {row['jobs']} "
            f"| {came['before']:,}, {came['at']:,}, {came['after']:,} | {row['held']:,} | {row['ratio']:.3f} "
            f"| {row['memory']:+.2f} MiB | {row['share']:.1%} |"
        )
    lines += [
        "",
        "| job | port | open | connections before, at, after | refused before, at, after |",
        "|---|---|---|---|---|",
    ]
    phases = ("before", "at", "after")
    for (backend, label), of_port in ports.items():
        is_open = ", ".join(phase for phase in phases if of_port[f"open {phase}"]) or "never"
        counts = [", ".join(f"{of_port[f'{phase} {how}']:,}" for phase in phases) for how in ("came", "refused")]
        lines.append(f"| {backend} | {label} | {is_open} | {counts[0]} | {counts[1]} |")
    return "\n".join(lines) + NOTES.format(ranks=options.ranks, pairs=options.pairs)


def compare(
    options: argparse.Namespace, backend: str, kind: str, recorded: dict[int, bytes], draw: random.Random
) -> dict[str, Any]:
    calm: list[Ran] = []
    wild: list[Ran] = []
    for pair in range(options.pairs):
        for one in ("", kind) if pair % 2 == 0 else (kind, ""):
            ran = run(options, backend, one, recorded, draw.randrange(2**32))
            (wild if one else calm).append(ran)
            if ran.wrong and not one:
                raise RuntimeError(f"a job without strangers failed: {ran.wrong}")
    for ran in wild:
        if not ran.wrong and ran.digest != calm[0].digest:
            ran.wrong = f"it learnt something else: {ran.digest}, not {calm[0].digest}"
    counts: collections.Counter[str] = collections.Counter()
    seen: dict[str, set[str]] = collections.defaultdict(set)
    for ran in wild:
        counts.update(ran.told["counts"])
    for ran in wild:
        for label, phases in ran.seen.items():
            seen[label] |= phases
    whole = [ran for ran in wild if not ran.wrong] or [Ran(step=float("nan"), peak=float("nan"))]
    middle = statistics.median
    return {
        "backend": backend,
        "kind": kind,
        "jobs": len(wild),
        "harmed": [ran.wrong for ran in wild if ran.wrong],
        "counts": counts,
        "seen": {label: sorted(phases) for label, phases in seen.items()},
        "held": max((ran.told["held"] for ran in wild), default=0) if kind == "half-open" else 0,
        "ratio": middle(ran.step for ran in whole) / middle(ran.step for ran in calm),
        "steps": {"with": [ran.step for ran in whole], "without": [ran.step for ran in calm]},
        "memory": middle(ran.peak for ran in whole) - middle(ran.peak for ran in calm),
        "share": middle(ran.told["share"] for ran in wild),
    }


def measure(options: argparse.Namespace, backends: list[str], kinds: list[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    draw = random.Random(options.seed)
    options.port = free_port(draw)
    with tempfile.NamedTemporaryFile(prefix="dear-strangers-") as secret:
        secret.write(os.urandom(32))
        secret.flush()
        options.secret = secret.name
        packet = record_packet(options)
        streams = {name: record_stream(options, name) for name in ("gloo", "gloo+secret")}
        for backend in backends:
            recorded: dict[int, bytes] = {socket.SOCK_STREAM: streams.get(backend, streams["gloo"])}
            recorded[socket.SOCK_SEQPACKET] = packet
            for kind in kinds:
                rows.append(compare(options, backend, kind, recorded, draw))
                print(
                    f"{backend}, {kind}: {len(rows[-1]['harmed'])} harmed, step {rows[-1]['ratio']:.3f}",
                    file=sys.stderr,
                )
                for why in rows[-1]["harmed"]:
                    print(f"    {why}", file=sys.stderr)
    return rows


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--dear", default="dear", help="the program, for its launcher")
    asked.add_argument("--backends", default=",".join(BACKENDS))
    asked.add_argument("--kinds", default=",".join(KINDS))
    asked.add_argument("--pairs", type=int, default=5)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--ranks", type=int, default=2)
    asked.add_argument("--steps", type=int, default=500)
    asked.add_argument("--width", type=int, default=512, help="of the layers: a step of 512 takes about 10 ms")
    asked.add_argument("--hold", type=float, default=2.0, help="seconds that the last rank is held back at least")
    asked.add_argument(
        "--stretch", type=float, default=0.5, help="seconds that a port which is open for a moment stays"
    )
    asked.add_argument("--rate", type=float, default=200.0, help="connections a second")
    asked.add_argument("--half-open", type=int, default=10000)
    asked.add_argument("--json", default="", help="a file for the figures")
    asked.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    options = asked.parse_args()
    if options.folder is not None:
        train(options.folder, options.backends, options.steps, options.width)
        return 0
    backends, kinds = options.backends.split(","), options.kinds.split(",")
    unknown = [one for one in backends if one not in BACKENDS] + [one for one in kinds if one not in KINDS]
    wrong = ""
    if unknown:
        wrong = f"unknown: {', '.join(unknown)}; backends are {', '.join(BACKENDS)}, kinds {', '.join(KINDS)}"
    elif min(options.pairs, options.rate, options.half_open) < 1 or options.ranks < 2 or options.steps < 20:
        wrong = "--pairs, --rate and --half-open must be at least 1, --ranks 2, --steps 20"
    elif os.geteuid() != 0:
        wrong = "it must run as root: some strangers are another user"
    elif set(LAUNCHED) & set(backends) and shutil.which(options.dear) is None:
        wrong = f"there is no program '{options.dear}': give --dear, or leave out the backends {', '.join(LAUNCHED)}"
    try:
        if options.json:
            open(options.json, "a").close()
    except OSError as error:
        wrong = f"cannot write {options.json}: {error.strerror}"
    if wrong:
        print(f"strangers.py: {wrong}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options.files = options.half_open + 200
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (options.files, max(options.files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        )
    options.files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        rows = measure(options, backends, kinds)
    except RuntimeError as error:
        print(f"strangers.py: {error}", file=sys.stderr)
        return 2
    print(table(options, rows))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1))
    return 1 if any(row["harmed"] and row["backend"] != "cpu:dear" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
