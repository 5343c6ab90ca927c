"""The time that it takes to watch whether ranks live, and to keep their flight records.

    PYTHONPATH=build/release/python python bench/faults/costs.py --build build/release

Three parts: dear.init() with and without liveness, in turns; a training whose steps take about 10 ms, of which the share is told
that threads of liveness and events of the recorder have; and its steps with and without a record, in turns. Nothing switches
liveness off, so ranks without it are in IPC namespaces of their own: they count as hosts that do not know each other's address.
That takes root. The exit code is 1 where beats and events take more than --most of a step.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import ctypes
import json
import os
import pathlib
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from typing import Any, NoReturn

from faults import free_port
from rank import import_all

PATIENCE = 60.0  # seconds beyond what a run takes
RING = (b"aeRecer1", 96)  # how a record begins, and where it says how many events there were ever
LAYERS, WIDTH = 10, 256  # 20 collectives a step
WARM = 20  # steps
CLONE_NEWIPC = 0x08000000

EVENTS = """
#include <chrono>
#include <cstdio>
#include "dear/base/recorder/recorder.h"
int main() {
  using namespace dear::recorder;
  open(0, 2);
  for (int round = 0; round < 5; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int one = 0; one < 2'000'000; ++one)
      note({.kind = one % 2 ? Kind::ended : Kind::begun, .number = one, .first = 1 << 20, .second = one, .collective = 1});
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    std::printf("%g\\n", took.count() / 2e6);
  }
}
"""


# ---- ranks


def in_ranks(ranks: int, act: Callable[[int], Any], limit: float, **variables: str) -> list[Any]:
    """The results of `act` on each rank: a process forked from this one, which has imported all."""
    port, name, deadline = free_port(), uuid.uuid4().hex, time.monotonic() + limit + PATIENCE
    children = []
    with tempfile.TemporaryFile() as output:
        for rank in range(ranks):
            heard, say = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.dup2(output.fileno(), 2)
                os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), TORCHELASTIC_RUN_ID=name, MASTER_PORT=str(port))
                os.environ.update(WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), **variables)
                run_rank(act, rank, say)
            os.close(say)
            children.append((pid, os.pidfd_open(pid), heard))
        results: list[Any] = []
        try:
            for pid, process, heard in children:
                if not select.select([process], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    os.kill(pid, signal.SIGKILL)
                has_failed = os.waitpid(pid, 0)[1] != 0
                os.close(process)
                with os.fdopen(heard, "rb") as result:
                    results.append(None if has_failed else json.loads(result.read()))
        finally:
            for pid, _, _ in children[len(results) :]:
                os.kill(pid, signal.SIGKILL)
        if None in results:
            output.seek(0)
            raise RuntimeError(f"rank {results.index(None)} failed: {output.read().decode(errors='replace')}")
    return results


def run_rank(act: Callable[[int], Any], rank: int, say: int) -> NoReturn:
    """Ends as Python ends, but nothing is destroyed."""
    code = 1
    try:
        os.write(say, json.dumps(act(rank)).encode())
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        atexit._run_exitfuncs()
        os._exit(code)


def liveness_seconds() -> float:
    """Processor time of the threads that watch whether ranks live; -1 where there is none."""
    found = []
    for task in pathlib.Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread may just end
            if (task / "comm").read_text().strip() == "dear-liveness":
                found.append(int((task / "schedstat").read_text().split()[0]) / 1e9)
    return sum(found) if found else -1.0


def start(backend: str, watched: bool, begin: float) -> float:
    """Seconds from `begin`, alike on all ranks, until this rank has its group."""
    import dear

    if not watched and ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWIPC) != 0:
        raise OSError(ctypes.get_errno(), "cannot make a namespace: run as root")
    time.sleep(max(0.0, begin - time.monotonic()))
    group = dear.init(backend=backend, timeout=PATIENCE)
    took = time.monotonic() - begin
    if (liveness_seconds() >= 0) != watched:
        raise RuntimeError(f"liveness of {group!r} is {'off' if watched else 'on'}, against what was meant")
    return took


def train(rank: int, batch: int, steps: int) -> dict[str, float]:
    import torch
    from torch import nn

    import dear

    torch.set_num_threads(1)
    torch.manual_seed(1)
    net: Any = nn.Sequential(*[layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())])
    model, optimizer = dear.distribute(
        net, torch.optim.SGD(net.parameters(), lr=0.01), fusion="layer", timeout=PATIENCE
    )
    x = torch.randn(batch, WIDTH)
    ends, before, events = [], 0.0, 0
    for step in range(WARM + steps):
        if step == WARM:
            before, events = liveness_seconds(), events_of(rank)
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        optimizer.step()
        ends.append(time.perf_counter())
    ends = ends[WARM - 1 :]
    return {
        "step": statistics.median(after - one for one, after in zip(ends, ends[1:])),
        "liveness": (liveness_seconds() - before) / (ends[-1] - ends[0]),
        "events": (events_of(rank) - events) / steps,
    }


def events_of(rank: int) -> int:
    """That were noted ever, as the record of this process says."""
    folder = os.environ.get("DEAR_RECORD")
    if not folder:
        return 0
    data = pathlib.Path(folder, f"rank-{rank}.record").read_bytes()
    if not data.startswith(RING[0]):
        raise RuntimeError("a record has another layout: see dear/base/recorder/record.h")
    return int(struct.unpack_from("<Q", data, RING[1])[0])


# ---- parts


def starts(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for backend in options.backends.split(","):
        for ranks in map(int, options.ranks.split(",")):
            took: dict[bool, list[float]] = {True: [], False: []}
            for pair in range(options.pairs):
                for watched in (True, False) if pair % 2 == 0 else (False, True):
                    begin = time.monotonic() + 0.1 + 0.05 * ranks
                    took[watched].append(max(in_ranks(ranks, lambda _: start(backend, watched, begin), 0)))
            with_, without = statistics.median(took[True]), statistics.median(took[False])
            rows.append(
                {"backend": backend, "ranks": ranks, "with": with_, "without": without, "all": list(took.values())}
            )
    return rows


def batch_of_ten_milliseconds() -> int:
    batch = 64
    for _ in range(3):
        step = max(one["step"] for one in in_ranks(2, lambda rank: train(rank, batch, 30), 0))
        batch = max(1, round(batch * 0.010 / step))
    return batch


def event_seconds(build: pathlib.Path) -> tuple[float, str]:
    """The time of one event, and how it is known."""
    root = pathlib.Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory(prefix="dear-costs-") as folder:
        source, program = pathlib.Path(folder, "events.cpp"), os.path.join(folder, "events")
        source.write_text(EVENTS)
        archives = [
            str(build / "lib" / "base" / name / f"libdear_{name}.a") for name in ("recorder", "os", "vocabulary")
        ]
        words = ["c++", "-std=c++20", "-O3", "-DNDEBUG", f"-I{root}", str(source), *archives, "-lfmt"]
        try:
            subprocess.run([*words, "-o", program], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            text = getattr(error, "stderr", b"") or str(error).encode()
            print(f"costs.py: no loop of events: {text.decode()[-500:]}", file=sys.stderr)
            return 0.13e-6, "of docs/measurements.md"
        told = subprocess.run([program], env={**os.environ, "DEAR_RECORD": folder}, check=True, capture_output=True)
        return statistics.median(map(float, told.stdout.split())) * 1e-9, "median of 5 rounds of 2 million"


def steps(options: argparse.Namespace) -> dict[str, Any]:
    batch = batch_of_ten_milliseconds()
    count = max(10, round(options.seconds / 0.010))
    folder = tempfile.mkdtemp(
        prefix="dear-costs-"
    )  # ranks run what is registered for the end, so no TemporaryDirectory
    try:
        whole = in_ranks(2, lambda rank: train(rank, batch, count), 4 * options.seconds, DEAR_RECORD=folder)
        took: dict[str, list[float]] = {"": [], folder: []}
        for pair in range(options.record_pairs):
            for record in ("", folder) if pair % 2 == 0 else (folder, ""):
                ran = in_ranks(2, lambda rank: train(rank, batch, options.record_steps), 0, DEAR_RECORD=record)
                took[record].append(ran[0]["step"])
    finally:
        shutil.rmtree(folder)
    seconds, how = event_seconds(options.build)
    step = max(one["step"] for one in whole)
    beats, events = max(one["liveness"] for one in whole), max(one["events"] for one in whole)
    return {
        "batch": batch,
        "step": step,
        "beats": beats,
        "events": events,
        "event": seconds,
        "how": how,
        "recorder": events * seconds / step,
        "ratio": statistics.median(took[folder]) / statistics.median(took[""])
        if options.record_pairs
        else float("nan"),
        "all": list(took.values()),
    }


def table(options: argparse.Namespace, begun: list[dict[str, Any]], trained: dict[str, Any]) -> str:
    lines = ["| backend | ranks | dear.init() with liveness | without | difference |", "|---|---|---|---|---|"]
    for row in begun:
        with_, without = 1e3 * row["with"], 1e3 * row["without"]
        lines.append(
            f"| {row['backend']} | {row['ranks']} | {with_:.2f} ms | {without:.2f} ms | {with_ - without:+.2f} ms |"
        )
    lines += [
        "",
        f"Until the last rank has its group, median of {options.pairs} pairs in turns. Ranks without liveness are in IPC",
    ]
    lines.append("namespaces of their own, and exchange one text each, of three.")
    lines += ["", "| of a step | |", "|---|---|", f"| its time | {1e3 * trained['step']:.2f} ms |"]
    lines.append(f"| processor time of the thread dear-liveness | {trained['beats']:.4%} |")
    lines.append(
        f"| events of the recorder | {trained['events']:.1f} x {1e6 * trained['event']:.3f} µs = {trained['recorder']:.4%} |"
    )
    lines.append(f"| both | {trained['beats'] + trained['recorder']:.4%} |")
    lines.append(f"| with DEAR_RECORD beside without, ratio of the medians | {trained['ratio']:.4f} |")
    lines += [
        "",
        f"2 ranks, {LAYERS} buckets, {options.seconds:g} s; the rank with the larger share. An event: {trained['how']}. The ratio:",
    ]
    lines.append(f"{options.record_pairs} pairs of {options.record_steps} steps in turns, rank 0.")
    return "\n".join(lines)


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"), help="for a loop of events")
    asked.add_argument("--backends", default="shm,gloo")
    asked.add_argument("--ranks", default="2,6", help="of dear.init()")
    asked.add_argument("--pairs", type=int, default=20, help="of dear.init()")
    asked.add_argument("--seconds", type=float, default=60.0, help="of the training")
    asked.add_argument("--record-pairs", type=int, default=6)
    asked.add_argument("--record-steps", type=int, default=500)
    asked.add_argument("--most", type=float, default=0.01, help="share of a step")
    asked.add_argument("--json", default="", help="a file for the figures")
    options = asked.parse_args()
    wrong = ""
    if not set(options.backends.split(",")) <= {"shm", "gloo"}:
        wrong = f"--backends {options.backends}: they are shm and gloo"
    elif not all(one.isdecimal() and int(one) >= 2 for one in options.ranks.split(",")):
        wrong = f"--ranks {options.ranks}: numbers of at least 2, with commas"
    elif min(options.pairs, options.record_pairs, options.record_steps) < 1 or options.seconds <= 0:
        wrong = "--pairs, --record-pairs and --record-steps must be at least 1, --seconds above 0"
    elif os.geteuid() != 0:
        wrong = "it must run as root: ranks without liveness are in namespaces of their own"
    try:
        if options.json:
            open(options.json, "a").close()
    except OSError as error:
        wrong = f"cannot write {options.json}: {error.strerror}"
    if wrong:
        print(f"costs.py: {wrong}", file=sys.stderr)
        return 2
    for name in [one for one in os.environ if one.startswith(("TORCHELASTIC", "SLURM", "OMPI", "DEAR_"))]:
        del os.environ[name]
    os.environ.update(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        import_all(False)
        begun, trained = starts(options), steps(options)
    except (ImportError, RuntimeError) as error:
        print(f"costs.py: {error}", file=sys.stderr)
        return 2
    print(table(options, begun, trained))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"start": begun, "steps": trained}, indent=1))
    return 0 if trained["beats"] + trained["recorder"] <= options.most else 1


if __name__ == "__main__":
    sys.exit(main())
