"""Ranks that are not equally quick: equal shares, DistributedDataParallel and shares in balance, in turns in one run.

    PYTHONPATH=build/release/python python bench/balance.py

starts two ranks, holds the second to half its speed, and trains the same batches by each rival: the quicker rank takes more of
each batch where shares follow measured speeds.

    bench/hosts up 3 300mbit
    bench/hosts rate-of 2 100mbit
    PYTHONPATH=build/release/python python bench/balance.py --links 300,300,100 --batch 24
    bench/hosts down

(with --measured: shards that follow the links by themselves) starts a rank on each host, with equal parts of a batch: shards of each bucket follow the links. A host that receives at one rate
and sends at another is 300/100, for both programs (and 300mbit/100mbit for the first).

A rank is held by this program, which stops it for as long as it lets it go on, --period milliseconds long each. Every rival begins
with the same model and has the same batches of all ranks, so all end with the same parameters: the run fails where they differ by
more than rounding, or where balance gains less than --least.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dear

ROOT = pathlib.Path(__file__).resolve().parent.parent


def make_model(options: argparse.Namespace) -> nn.Module:
    torch.manual_seed(3)
    stack: list[nn.Module] = []
    for _ in range(options.layers):
        stack += [nn.Linear(options.width, options.width), nn.Tanh()]
    return nn.Sequential(*stack)


class Rival:
    """One training. `shares`: of a batch; none for the equal ones of DistributedDataParallel."""

    def __init__(self, options: argparse.Namespace, wrap: Any) -> None:
        model = make_model(options)
        self.model, self.optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
        self._options, self._step, self.seconds = options, 0, list[float]()
        self._samples = torch.randn(options.batch, options.width, generator=torch.Generator().manual_seed(4))
        self.balanced = isinstance(self.model, dear.DataParallel) and self.model._said["balanced"]

    def _rows(self) -> slice:
        batch, rank, ranks = self._options.batch, dist.get_rank(), dist.get_world_size()
        if not self.balanced:
            return slice(batch * rank // ranks, batch * (rank + 1) // ranks)
        counts = [self.model.batch_share(one, batch) for one in range(ranks)]
        return slice(sum(counts[:rank]), sum(counts[: rank + 1]))

    def steps(self, count: int) -> None:
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(count):
            inputs = self._samples[self._rows()] + 0.01 * self._step
            self.optimizer.zero_grad()
            self.model(inputs).square().mean().backward()
            self.optimizer.step()
            self._step += 1
        if isinstance(self.model, dear.DataParallel):
            self.model.synchronize()
        dist.barrier()
        self.seconds.append((time.perf_counter() - begin) / count)


def rank(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")

    def ddp(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        return DistributedDataParallel(model, gradient_as_bucket_view=True), optimizer

    def ours(**more: Any) -> Any:
        return lambda model, optimizer: dear.distribute(model, optimizer, fusion=options.fusion, **more)

    weights: dict[str, dear.ShardWeights] = {}
    best = ""
    if options.links:
        receive, send = zip(
            *((float(one.split("/")[0]), float(one.split("/")[-1])) for one in options.links.split(","))
        )
        weights = {policy: dear.shard_weights(send, receive, policy=policy) for policy in ("wfbp", "dear")}
        best = max(weights, key=lambda policy: round(weights[policy].gain, 3))
        if abs(weights["dear"].gain - weights["wfbp"].gain) < 0.02:
            best = "dear"  # needs no work both ways at a time
        made = {
            "DDP": ddp,
            "DeAR, equal shards": ours(),
            "DeAR wfbp, equal shards": ours(policy="wfbp"),
            f"DeAR {best}, shards by links": ours(policy=best, shards=weights[best]),
        }
        if options.measured:
            made = {"DDP": made["DDP"], **{f"DeAR {one}, equal shards": ours(policy=one) for one in ("dear", "wfbp")}}
            made["DeAR wfbp, shards measured"] = ours(policy="wfbp", shards="measured")
    else:
        made = {"DDP": ddp, "DeAR, equal shares": ours(), "DeAR, balanced": ours(balance="measured")}
    rivals = {name: Rival(options, wrap) for name, wrap in made.items()}
    names = list(rivals)
    for block in range(options.blocks + options.unmeasured):
        turn = block % len(names)
        for name in names[turn:] + names[:turn]:
            rivals[name].steps(options.steps)
    reference = [one.detach() for one in rivals["DDP"].model.parameters()]
    worst = max(
        ((one.detach() - other).abs().max() / other.abs().max()).item()
        for rival in rivals.values()
        for one, other in zip(rival.model.parameters(), reference)
    )
    of_links = weights.get(best) if options.links else None
    best = names[-1]
    shares = [rivals[best].model.batch_share(one) for one in range(dist.get_world_size())] if not options.links else []
    medians = {name: statistics.median(rival.seconds[options.unmeasured :]) for name, rival in rivals.items()}
    failed = ""
    if dist.get_rank() == 0:
        print(
            f"{sum(one.numel() for one in reference)} parameters, batches of {options.batch}, {dist.get_world_size()} ranks"
        )
        if of_links is not None:
            print(
                f"links of {options.links} Mbit/s, shards {', '.join(f'{one:.2f}' for one in of_links)},"
                f" foreseen {of_links.gain:.2f} x"
            )
        else:
            print(f"rank 1 held to half its speed; shares {', '.join(f'{one:.2f}' for one in shares)}")
        for name in names:
            pairs = zip(rivals[name].seconds[options.unmeasured :], rivals[best].seconds[options.unmeasured :])
            ratios = sorted(one / mine for one, mine in pairs)
            quarter = len(ratios) // 4
            print(
                f"{name:28} {1e3 * medians[name]:9.2f} ms a step, {statistics.median(ratios):.2f} x the last"
                f" ({ratios[quarter]:.2f} to {ratios[-1 - quarter]:.2f})"
            )
        print(f"parameters differ by {worst:.1e} of the largest of their tensor")
        gain = min(medians[name] for name in names[:-1]) / medians[best]
        print(f"gain over the quickest rival: {gain:.2f} x")
        if gain < options.least:
            failed = f"the gain is below {options.least}"
    if worst > 1e-4:
        failed = "parameters are not those of equal shares"
    dist.barrier()
    if failed:
        sys.exit(failed)


def hold(pid: int, ranks: list[subprocess.Popen[bytes]], period: float) -> None:
    """Stops the process half of the time, until a rank has ended."""
    while all(one.poll() is None for one in ranks):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(period)
        os.kill(pid, signal.SIGCONT)
        time.sleep(period)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (
        ("layers", 6),
        ("width", 512),
        ("batch", 256),
        ("steps", 10),
        ("blocks", 12),
        ("unmeasured", 4),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--fusion", default="4MiB")
    parser.add_argument("--links", default="", help="Mbit/s of each host of bench/hosts")
    parser.add_argument("--measured", action="store_true", help="shards follow measured links, which you may change meanwhile")
    parser.add_argument("--period", type=float, default=5.0, help="milliseconds of a stop")
    parser.add_argument("--least", type=float, default=0.0, help="fail below this gain over the quickest rival")
    parser.add_argument("--hosts", default=str(ROOT / "bench" / "hosts"), help=argparse.SUPPRESS)
    parser.add_argument("--address", default="10.77.0.1", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if "RANK" in os.environ:
        return rank(options)
    count = len(options.links.split(",")) if options.links else 2
    ranks = []
    for number in range(count):
        place = {
            "RANK": str(number),
            "WORLD_SIZE": str(count),
            "LOCAL_RANK": str(number),
            "LOCAL_WORLD_SIZE": str(count),
        }
        place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29619", "OMP_NUM_THREADS": "1"}
        if options.links:
            place |= {
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": options.address,
                "GLOO_SOCKET_IFNAME": "eth0",
            }
        on = [options.hosts, "run", str(number)] if options.links else []
        ranks.append(subprocess.Popen([*on, sys.executable, "-B", *sys.argv], env={**os.environ, **place}))
    try:
        if not options.links:
            hold(ranks[1].pid, ranks, options.period / 1e3)
        sys.exit(max(abs(one.wait()) for one in ranks))
    finally:
        for one in ranks:
            one.kill()


if __name__ == "__main__":
    main()
