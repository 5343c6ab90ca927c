"""Steps of dear.pipeline() beside its rivals, in turns in the same processes:

    PYTHONPATH=build/release/python OMP_NUM_THREADS=1 torchrun --nproc-per-node 4 bench/pipeline.py --between 5 --inside 20

A GPT whose blocks lie on all ranks. Rank r is at site r % SITES: links inside a site carry --inside Mb/s, others --between Mb/s with
--latency ms. They are modelled, one for each ordered pair of ranks, for all sides; with --wires messages go over Gloo as they are,
between hosts whose links are such, or as --cluster says. Devices are as fast as this program measures,
while all compute, anew in each turn. --device makes each rank a device of so many GFLOP/s: its products of matrices sleep until such
a device would have them, so that more ranks than processors compute side by side.

Sides: plans of dear.pipeline() by OP-Fence (compressed by AdaTopK, by uniform top-k, and dense), cut into equal work and into equal
numbers of operators; and torch.distributed.pipelining (Schedule1F1B) with the stages of equal number. Losses of all dense sides in all
steps and gradients of the first have to be those of one process, or nothing is printed. Then it prints what a step takes, what the plan
says that it takes, and memory likewise. --learn compares losses after so many steps on the licences of a Debian system instead.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import pathlib
import runpy
import statistics
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

import dear
from dear import _pipeline_operators, _pipeline_trace, _pipeline_wire

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "python" / "pipeline.py"
SAME = 1e-5  # relative, in fp32
SIDES = ["ada-top-k", "top-k", "op-fence", "equal-work", "equal-number", "pytorch"]


class Device(TorchDispatchMode):
    """Its products of matrices end when a device of `rate` FLOP/s would have them, which computes them one after the other.
    What comes between two of them within SLACK takes nothing from it: it makes up for what this host is late."""

    SLACK = 0.005  # s

    def __init__(self, rate: float) -> None:
        super().__init__()
        self._rate, self._free = rate, 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        begin = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        if operations := flop_registry.get(func._overloadpacket):
            begins = self._free if begin - self._free < self.SLACK else begin
            self._free = begins + operations(*args, **(kwargs or {}), out_val=result) / self._rate
            time.sleep(max(0.0, self._free - time.perf_counter()))
        return result


class TorchStage(nn.Module):
    """A stage of a plan as torch.distributed.pipelining takes one: what arrives comes as arguments, what leaves is returned."""

    def __init__(self, stage: Any) -> None:
        super().__init__()
        self.module, self._stage = stage.parts[0].module, stage

    def forward(self, *given: Tensor) -> Any:
        stage = self._stage
        arrived = dict(zip(stage.inputs or [one.name for one in stage.arrives], given))
        made, output = self.module(*(arrived[name] for name in (*stage.inputs, *stage.reads)))
        known = arrived | dict(zip(stage.makes, made))
        leaves = tuple(known[one.name] for one in stage.leaves)
        return output if output is not None else leaves if len(leaves) > 1 else leaves[0]


def wires_of(options: argparse.Namespace, ranks: int) -> list[dict[str, Any]]:
    """Those that hosts and sites share: the card of each rank, and the line of each site to the others."""
    site = [rank % options.sites for rank in range(ranks)]
    shared = []
    for ends in (0, 1):  # what is sent, and what is received
        pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
        lots = [(options.inside, [one for one in pairs if one[ends] == rank]) for rank in range(ranks)]
        for here in range(options.sites if options.sites > 1 else 0):
            out = [one for one in pairs if site[one[ends]] == here and site[one[0]] != site[one[1]]]
            lots.append((options.between, out))
        shared += [
            {"bytes_per_second": 1e6 / 8 * rate, "links": [[f"rank {a}", f"rank {b}"] for a, b in lot]}
            for rate, lot in lots
        ]
    return shared


def links(options: argparse.Namespace, ranks: int, speed: float, top_k_speed: float) -> str:
    if options.cluster:
        cluster = json.loads(dear._C.pipeline_cluster(options.cluster)[0])
    else:

        def of_pairs(inside: float, between: float) -> list[list[float | None]]:
            rates = [inside, *[between] * (options.sites - 1)]  # by how many sites lie between two ranks
            return [[None if a == b else rates[(a - b) % options.sites] for b in range(ranks)] for a in range(ranks)]

        cluster = {
            "format": "dear-pair-cluster",
            "version": 1,
            "name": f"{options.sites} sites of a bench",
            "devices": [{"name": f"rank {rank}", "memory_bytes": 1 << 40} for rank in range(ranks)],
            "bytes_per_second": of_pairs(1e6 / 8 * options.inside, 1e6 / 8 * options.between),
            "latency_seconds": of_pairs(1e-4, 1e-3 * options.latency),
        }
        if options.wires:
            cluster["shared_wires"] = wires_of(options, ranks)
    for device in cluster["devices"]:
        device["flops_per_second"] = speed
        device["top_k_elements_per_second"] = top_k_speed
    return json.dumps(cluster)


def peak_of(act: Callable[[], object]) -> int:
    """Bytes that the allocator gave out at once, beyond those that were out before."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiled:
        act()
    result = profiled.profiler.kineto_results
    given = sorted((one.start_ns(), one.nbytes()) for one in result.events() if one.name() == "[memory]")
    return max(itertools.accumulate(size for _, size in given), default=0)


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.example = options, types.SimpleNamespace(**runpy.run_path(str(EXAMPLE)))
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        generator = torch.Generator().manual_seed(1)
        shape = options.batch, options.context
        self.x, self.y = (torch.randint(0, 256, shape, generator=generator) for _ in range(2))
        model, self.part = self.model(), self.x[: options.batch // options.micro_batches]
        traced = _pipeline_trace.trace(model, (self.part,), {}, ())
        self.operators = _pipeline_operators.to_json(_pipeline_operators.operators_of(traced), model)
        works = (one.items() for one in json.loads(self.operators)["operators"])
        self.work = sum(value for items in works for key, value in items if key.endswith("_work"))
        self.probed = self.model()
        self.speeds = [self.speed()]
        self.top_k_speeds = [self.top_k_speed()]
        self.cluster = links(options, self.ranks, self.speeds[0], self.top_k_speeds[0])
        self.network = None if options.wires else dear.ModelledNetwork(self.cluster)

    def model(self) -> Any:
        torch.manual_seed(1)
        options = self.options
        model = self.example.Gpt(options.layers, options.width, options.heads, options.context)
        model.head.weight = nn.Parameter(model.head.weight.detach().clone())  # rivals have no tied weights
        return model

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=self.options.lr, momentum=0.9)

    def computing(self) -> Any:
        """In it a rank computes at the speed of its device."""
        rate = 1e9 * self.options.device
        return Device(rate) if rate > 0 else contextlib.nullcontext()

    def speed(self) -> float:
        """Operations a second that a rank attains in the model while all of them compute; the slowest counts."""
        times = []
        dist.barrier()
        for _ in range(5):
            begin = time.perf_counter()
            with self.computing():
                self.example.cross_entropy(self.probed(self.part), self.y[: len(self.part)]).backward()
            times.append(time.perf_counter() - begin)
        slowest = torch.tensor(statistics.median(times), dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        return self.work / float(slowest)

    def top_k_speed(self) -> float:
        """Elements a second, of a hidden state, that a rank packs or unpacks; the slowest counts."""
        given = torch.randn(len(self.part), self.options.context, self.options.width)
        one = types.SimpleNamespace(shape=tuple(given.shape), dtype=given.dtype)
        dist.barrier()
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            _pipeline_wire.decompressed(_pipeline_wire.compressed(given, self.options.ratio), one)
            times.append((time.perf_counter() - begin) / 2)
        slowest = torch.tensor(statistics.median(times), dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        return given.numel() / float(slowest)

    def expected(self, pipe: Any) -> float:
        """Seconds that the plan says of a step, at the speed that devices had meanwhile."""
        speeds = statistics.median(self.speeds), statistics.median(self.top_k_speeds)
        cluster = links(self.options, self.ranks, *speeds)
        read = dear._C.pipeline_read(pipe.plan, "the plan", self.operators, cluster)
        return read.estimated_seconds + pipe.estimated_seconds - pipe._made.read.estimated_seconds

    def pipe(self, method: str, compress: str | None, group: Any = None) -> tuple[Any, Any]:
        model = self.model()
        return dear.pipeline(
            model,
            self.optimizer(model.parameters()),
            sample=self.x,
            micro_batches=self.options.micro_batches,
            method=method,
            compress=compress,
            cluster=self.cluster,
            process_group=group,
        )

    def group(self) -> Any:
        """A process group over the links of the bench."""
        if self.network is None:
            return dist.new_group(backend="gloo")
        return dist.new_group(backend="cpu:dear", pg_options=self.network)

    # ---- sides: a function that makes a step and returns its loss, on every rank

    def dear_side(self, method: str, compress: str | None) -> tuple[Callable[[], Tensor], Any]:
        pipe, optimizer = self.pipe(method, compress, self.group())

        def step() -> Tensor:
            optimizer.zero_grad()
            loss = pipe.step(self.x, self.y, loss=self.example.cross_entropy)
            optimizer.step()
            return loss

        return step, pipe

    def torch_side(self) -> tuple[Callable[[], Tensor], Any]:
        pipe, optimizer = self.pipe("equal-number", None)
        (stage,) = (stage for stage in pipe._made.stages if stage.rank == self.rank)
        module = TorchStage(stage)
        rival = PipelineStage(module, stage.number, self.ranks, torch.device("cpu"), group=self.group())
        schedule = Schedule1F1B(rival, self.options.micro_batches, loss_fn=self.example.cross_entropy)

        def step() -> Tensor:
            optimizer.zero_grad()
            losses: list[Tensor] = []
            last = stage.number == self.ranks - 1
            if last:
                schedule.step(target=self.y, losses=losses)
            else:
                schedule.step(*([self.x] if stage.number == 0 else []))
            optimizer.step()
            return torch.stack([one.detach() for one in losses]).mean() if last else torch.zeros(())

        return step, pipe

    def alone(self, steps: int) -> tuple[list[float], dict[str, Tensor]]:
        """Losses of one process, and gradients of its first step."""
        model = self.model()
        optimizer = self.optimizer(model.parameters())
        losses, gradients = [], {}
        parts = list(zip(self.x.chunk(self.options.micro_batches), self.y.chunk(self.options.micro_batches)))
        for step in range(steps):
            optimizer.zero_grad()
            total = 0.0
            for x, y in parts:
                loss = self.example.cross_entropy(model(x), y) / len(parts)
                loss.backward()
                total += float(loss.detach())
            if step == 0:
                gradients = {name: one.grad.clone() for name, one in model.named_parameters()}
            optimizer.step()
            losses.append(total)
        return losses, gradients

    def require_same(self, name: str, pipe: Any, gradients: dict[str, Tensor]) -> None:
        apart = max(
            (
                float((one.grad - gradients[key]).norm() / gradients[key].norm().clamp(min=1e-12))
                for key, one in pipe.named_parameters()
            ),
            default=0.0,
        )
        if not apart <= SAME:
            sys.exit(
                f"pipeline.py: rank {self.rank}: gradients of {name} are apart from those of one process by {apart:.1e}"
            )

    def compare(self) -> None:
        options = self.options
        ratio = f":{options.ratio:g}"
        plans: dict[str, tuple[str, str | None]] = {
            "ada-top-k": ("op-fence", "ada-top-k" + ratio),
            "top-k": ("op-fence", "top-k" + ratio),
            "op-fence": ("op-fence", None),
            "equal-work": ("equal-work", None),
            "equal-number": ("equal-number", None),
        }
        sides = {name: self.dear_side(*plan) for name, plan in plans.items() if name in options.sides}
        if "pytorch" in options.sides:
            sides["pytorch"] = self.torch_side()
        dense = [name for name in sides if plans.get(name, ("", None))[1] is None]
        losses_alone, gradients = self.alone(options.turns + 1)
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        losses: dict[str, list[Tensor]] = {name: [] for name in sides}
        for turn in range(options.turns + 1):
            self.speeds.append(self.speed())
            self.top_k_speeds.append(self.top_k_speed())
            for name, (step, pipe) in sides.items():
                dist.barrier()
                begin = time.perf_counter()
                with self.computing():
                    loss = step()
                took = torch.tensor(time.perf_counter() - begin, dtype=torch.float64)
                dist.all_reduce(took, dist.ReduceOp.MAX)
                losses[name].append(loss)
                if turn == 0 and name in dense:
                    self.require_same(name, pipe, gradients)
                elif turn:
                    seconds[name].append(float(took))
                if self.rank == 0:
                    print(f"turn {turn}: {name}: {float(took):.2f} s", file=sys.stderr, flush=True)
        last = self.rank == self.ranks - 1
        for name in dense:
            of_side = torch.stack([one.detach().double() for one in losses[name]])
            apart = float((of_side - torch.tensor(losses_alone)).abs().max() / losses_alone[0])
            if not apart <= SAME and (last or name != "pytorch"):
                sys.exit(
                    f"pipeline.py: rank {self.rank}: losses of {name} are apart from those of one process by {apart:.1e}"
                )
        peaks = {name: self.peak(*sides[name]) for name in sides if name != "pytorch"}
        dist.barrier()
        if self.rank == 0:
            self.tell(sides, seconds, peaks)

    def peak(self, step: Callable[[], Tensor], pipe: Any) -> list[tuple[float, float]]:
        """By rank: bytes that are out at most in a step, and what the plan says."""
        copies = 3 if pipe.stages_here else 0  # parameters, gradients, momenta
        resident = copies * sum(one.nbytes for one in pipe.parameters())
        gradients = resident / 3
        # A step lets gradients go and makes them anew.
        measured = resident - gradients + peak_of(step)
        everyone: list[Any] = [None] * self.ranks
        dist.all_gather_object(everyone, (measured, pipe.estimated_peak_bytes))
        return everyone

    def tell(self, sides: dict[str, Any], seconds: dict[str, list[float]], peaks: dict[str, Any]) -> None:
        medians = {name: statistics.median(times) for name, times in seconds.items()}
        rivals = [name for name in ("equal-number", "pytorch") if name in sides]
        print(
            f"{'':12} {'a step':>9} {'least':>9} {'most':>9}  times as fast as {', '.join(rivals)}; predicted, of a step"
        )
        for name, (_, pipe) in sides.items():
            took = medians[name]
            line = f"{name:12} {took:7.3f} s {min(seconds[name]):7.3f} s {max(seconds[name]):7.3f} s "
            line += "".join(f" {medians[rival] / took:6.2f}" for rival in rivals)
            if name != "pytorch":
                line += f";  {self.expected(pipe):6.3f} s, {self.expected(pipe) / took:.2f}"
            print(line)
        for name, of_ranks in peaks.items():
            told = (f"{measured / 1e6:.1f} ({planned / measured:.2f})" for measured, planned in of_ranks)
            print(f"{name}: peak memory of ranks in MB, and what the plan says of it: {', '.join(told)}")

    def learn(self) -> None:
        """Losses after some steps, dense and compressed, for one seed after another."""
        text, options = self.example.read_text(), self.options
        ratio = f":{options.ratio:g}"
        gaps: dict[str, list[float]] = {"ada-top-k": [], "top-k": []}
        kept: dict[str, float] = {}
        for seed in range(options.seeds):
            finals: dict[str, float] = {}
            for rule in ("none", *gaps):
                pipe, optimizer = self.pipe("op-fence", None if rule == "none" else rule + ratio)
                generator = torch.Generator().manual_seed(seed)
                losses = []
                for _ in range(options.learn):
                    begins = torch.randint(0, len(text) - options.context - 1, (options.batch,), generator=generator)
                    pieces = text[begins[:, None] + torch.arange(options.context + 1)]
                    optimizer.zero_grad()
                    losses.append(float(pipe.step(pieces[:, :-1], pieces[:, 1:], loss=self.example.cross_entropy)))
                    pipe.clip_grad_norm_(1.0)
                    optimizer.step()
                finals[rule] = statistics.mean(losses[-max(1, options.learn // 10) :])
                kept[rule] = self.kept_elements(pipe)
            for rule in gaps:
                gaps[rule].append(finals[rule] - finals["none"])
            if self.rank == 0:
                told = ", ".join(f"{rule} {loss:.4f}" for rule, loss in finals.items())
                print(f"seed {seed}: losses at the end: {told}", flush=True)
        if self.rank == 0:
            for rule, of_seeds in gaps.items():
                print(
                    f"{rule}: {100 * kept[rule] / kept['none']:.2f} % of elements travel; loss above dense by "
                    f"{statistics.mean(of_seeds):.4f} ({min(of_seeds):.4f} to {max(of_seeds):.4f})"
                )

    def kept_elements(self, pipe: Any) -> float:
        """Of all activations and gradients that cross links, for one micro-batch."""
        return sum(
            max(1, int(torch.Size(one.shape).numel() / ratio))
            for stage in pipe._made.stages
            for one in stage.leaves
            if one.has_gradient
            for ratio in (one.activation_ratio, one.gradient_ratio)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    whole = (
        ("layers", 8),
        ("width", 64),
        ("heads", 4),
        ("context", 64),
        ("batch", 32),
        ("micro-batches", 8),
        ("sites", 2),
    )
    for name, value in (*whole, ("turns", 5), ("seeds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value, help="default: %(default)s")
    rates = (
        ("inside", 20.0, "Mb/s"),
        ("between", 5.0, "Mb/s"),
        ("latency", 1.0, "ms between sites"),
        ("lr", 0.01, "of SGD"),
    )
    for name, number, unit in (*rates, ("ratio", 100.0, "of compression")):
        parser.add_argument(f"--{name}", type=float, default=number, help=f"{unit} (default: %(default)s)")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES, help="default: all")
    parser.add_argument(
        "--cluster",
        help="a file of links or the name of a preset, in place of --sites, --inside, --between and --latency",
    )
    parser.add_argument("--device", type=float, default=0, help="GFLOP/s of the modelled device of a rank; 0 for none")
    parser.add_argument("--wires", action="store_true", help="no link is modelled")
    parser.add_argument("--learn", type=int, default=0, metavar="STEPS", help="compare losses after so many steps")
    options = parser.parse_args()
    for name in (
        "inside",
        "between",
        "layers",
        "width",
        "heads",
        "context",
        "batch",
        "micro_batches",
        "sites",
        "turns",
        "seeds",
    ):
        if not getattr(options, name) > 0:
            parser.error(f"--{name.replace('_', '-')} {getattr(options, name)}: give a number above 0")
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo")
    except (ValueError, RuntimeError) as error:
        sys.exit(f"pipeline.py: ranks are started by torchrun or dear launch: {str(error).splitlines()[0]}")
    try:
        bench = Bench(options)
        if options.learn:
            bench.network = None
            bench.learn()
        else:
            bench.compare()
    except (dear.ConfigError, OSError, ValueError) as error:
        sys.exit(f"pipeline.py: {error}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
