"""Steps of a network with mixtures of experts: written with PyTorch over Gloo, and dear.MoE with each way to hide its
all-to-alls, in turns in the same processes:

    PYTHONPATH=build/release/python OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 bench/moe.py [--wire 20] [--width 256] [--parts 2]
        [--device 5]

A block is an attention and a mixture (Switch, capacity factor 1.25), or a perceptron in all but every `--every`-th one. --wire
models the network of the all-to-alls of all sides, in MB/s and with 0.3 ms a message, one after another on each rank; without it
they take what they take on this host. --device makes each rank a device of so many GFLOP/s: its products of matrices sleep until
such a device would have them, so that more ranks than processors compute side by side. "waits" is the time of a step in which a rank waits for all-to-alls. After the turns losses
of all must agree to 1e-4, or nothing is printed.

"experts": parts of a batch within each mixture, as Tutel and FasterMoE. "cut": parts of the whole model. "weights": weight
gradients under all-to-alls. "lancet": both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

import dear
from dear import _moe_nodes

CAPACITY = 1.25
LATENCY = 3e-4  # seconds of a message on the modelled wire


class Wire:
    """Carries all-to-alls; where a rate is given, each ends no sooner than a network of that rate would end it."""

    def __init__(self, rate: float) -> None:
        self._rate = rate  # bytes a second; 0 for none
        self._free = 0.0
        self.waited = 0.0
        self._carry = _moe_nodes.all_to_all

    def start(self, taken: Tensor, sent: Tensor, takes: list[int], sends: list[int], group: Any) -> Under:
        rank = dist.get_rank(group)
        rows = sum(sends) - sends[rank]
        work = self._carry(taken, sent, takes, sends, group)
        ends = 0.0
        if self._rate > 0:
            self._free = max(time.perf_counter(), self._free) + LATENCY
            self._free += rows * sent[0].nbytes / self._rate if rows else 0
            ends = self._free
        return Under(self, work, ends)


class Under:
    def __init__(self, wire: Wire, work: Any, ends: float) -> None:
        self._wire, self._work, self._ends = wire, work, ends

    def wait(self) -> None:
        begin = time.perf_counter()
        self._work.wait()
        time.sleep(max(0.0, self._ends - time.perf_counter()))
        self._wire.waited += time.perf_counter() - begin


class Device(TorchDispatchMode):
    """Its products of matrices end no sooner than on a device of `rate` FLOP/s."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self._rate = rate

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        begin = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        if operations := flop_registry.get(func._overloadpacket):
            ends = begin + operations(*args, **(kwargs or {}), out_val=result) / self._rate
            time.sleep(max(0.0, ends - time.perf_counter()))
        return result


class AllToAll(torch.autograd.Function):
    """As a program writes it: at once there, and back in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, takes: list[int], sends: list[int], wire: Wire, group: Any) -> Tensor:
        ctx.given = sends, takes, wire, group
        taken = x.new_empty(sum(takes), x.shape[1])
        wire.start(taken, x.contiguous(), takes, sends, group).wait()
        return taken

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        takes, sends, wire, group = ctx.given
        dx = dy.new_empty(sum(takes), dy.shape[1])
        wire.start(dx, dy.contiguous(), takes, sends, group).wait()
        return dx, None, None, None, None


class PlainMixture(nn.Module):
    """dear.MoE's Switch in plain PyTorch, with its parameters."""

    def __init__(self, like: dear.MoE, wire: Wire, group: Any) -> None:
        super().__init__()
        self.gate = like.gate
        self.inputs, self.outputs = like.inputs, like.outputs
        self.experts, self._wire, self._group = like.experts, wire, group

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        ranks = dist.get_world_size(self._group)
        capacity = int(CAPACITY * -(-len(flat) // self.experts))
        probabilities = self.gate(flat).softmax(1)
        weights, chosen = probabilities.max(1)
        places = functional.one_hot(chosen, self.experts).cumsum(0).gather(1, chosen[:, None])[:, 0]
        kept = (places <= capacity).nonzero()[:, 0]
        order = kept[chosen[kept].argsort(stable=True)]
        counts = torch.bincount(chosen[kept], minlength=self.experts)
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts, group=self._group)
        sends, takes = counts.view(ranks, -1).sum(1).tolist(), arriving.view(ranks, -1).sum(1).tolist()
        rows = AllToAll.apply(flat[order], takes, sends, self._wire, self._group)
        expert_of_row = torch.arange(self.experts // ranks).repeat(ranks).repeat_interleave(arriving)
        sorting = expert_of_row.argsort(stable=True)
        blocks = rows[sorting].split(torch.bincount(expert_of_row, minlength=self.experts // ranks).tolist())
        made = [functional.gelu(one @ a.t()) @ b.t() for one, a, b in zip(blocks, self.inputs, self.outputs)]
        back = AllToAll.apply(torch.cat(made)[sorting.argsort()], sends, takes, self._wire, self._group)
        result = torch.zeros_like(flat).index_copy(0, order, back * weights[order, None])
        return result.view_as(x)


class Block(nn.Module):
    def __init__(self, width: int, mixture: nn.Module) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mixture = mixture

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (one.unflatten(-1, (4, -1)).transpose(1, 2) for one in self.mixed(self.norms[0](x)).chunk(3, -1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mixture(self.norms[1](x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (
        ("blocks", 4),
        ("width", 256),
        ("hidden", 1024),
        ("experts", 4),
        ("samples", 8),
        ("length", 64),
        ("every", 1),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--parts", type=int, default=2, help="of a batch (default: %(default)s)")
    parser.add_argument(
        "--fusion", default="25MB", help="buckets of dense gradients (default: %(default)s, as of PyTorch's)"
    )
    parser.add_argument("--turns", type=int, default=12, help="of three steps each (default: %(default)s)")
    parser.add_argument("--wire", type=float, default=0, help="MB/s of the modelled network; 0 for none")
    parser.add_argument("--device", type=float, default=0, help="GFLOP/s of the modelled device of a rank; 0 for none")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("cpu:dear")
    gloo = dist.new_group(backend="gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    wire = Wire(1e6 * options.wire)
    _moe_nodes.all_to_all = wire.start
    generator = torch.Generator().manual_seed(rank)
    samples = torch.randn(options.samples, options.length, options.width, generator=generator)

    def network(plain: bool, parts: int) -> nn.Module:
        torch.manual_seed(1)
        blocks = []
        for number in range(options.blocks):
            if (number + 1) % options.every:
                layers = nn.Linear(options.width, options.hidden), nn.GELU(), nn.Linear(options.hidden, options.width)
                blocks.append(Block(options.width, nn.Sequential(*layers)))
                continue
            mixture: nn.Module = dear.MoE(
                options.width, options.hidden, experts=options.experts, capacity_factor=CAPACITY, parts=parts
            )
            if plain:
                assert isinstance(mixture, dear.MoE)
                mixture = PlainMixture(mixture, wire, gloo)
            blocks.append(Block(options.width, mixture))
        return nn.Sequential(*blocks)

    steps: dict[str, Callable[[], Tensor]] = {}
    nets: dict[str, Any] = {}

    def add(name: str, net: Any, optimizer: torch.optim.Optimizer, prepare: Callable[[], None] = lambda: None) -> None:
        def step() -> Tensor:
            optimizer.zero_grad()
            loss = net(samples).square().mean()
            loss.backward()
            prepare()
            optimizer.step()
            return loss.detach()

        steps[name], nets[name] = step, net

    def adamw(net: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(net.parameters(), lr=1e-4)

    net = network(True, 1)
    experts = [parameter for name, parameter in net.named_parameters() if name.endswith(("inputs", "outputs"))]
    net._ddp_params_and_buffers_to_ignore = [  # type: ignore[assignment]
        name for name, _ in net.named_parameters() if name.endswith(("inputs", "outputs"))
    ]

    def mean_of_experts() -> None:
        for parameter in experts:
            assert parameter.grad is not None
            parameter.grad /= ranks

    add("PyTorch, Gloo", DistributedDataParallel(net, process_group=gloo), adamw(net), mean_of_experts)
    ways: list[tuple[str, str, int, int | str]] = [  # its name, overlap, parts of a mixture, parts of the model
        ("none", "none", 1, 1),
        ("experts", "experts", options.parts, 1),
        ("weights", "lancet", 1, 1),
        ("cut", "experts", 1, options.parts),
        ("lancet", "lancet", 1, options.parts),
    ]
    for name, overlap, of_mixture, of_model in ways:
        net = network(False, of_mixture)
        parallel = dear.distribute(net, adamw(net), overlap=overlap, parts=of_model, fusion=options.fusion)
        add(f"dear {name}", *parallel)

    if options.device > 0:
        Device(1e9 * options.device).__enter__()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    waits: dict[str, list[float]] = {name: [] for name in steps}
    losses: dict[str, list[Tensor]] = {name: [] for name in steps}
    for turn in range(options.turns + 3):
        for name, step in steps.items():
            dist.barrier()
            wire.waited, begin = 0.0, time.perf_counter()
            for _ in range(3 if turn else 8):  # in the first turn dear plans by what it measures
                losses[name].append(step())
            if isinstance(net := nets[name], dear.DataParallel):
                net.synchronize()
            if turn >= 3:
                seconds[name].append((time.perf_counter() - begin) / 3)
                waits[name].append(wire.waited / 3)
    first = torch.stack(losses["PyTorch, Gloo"])
    for name, of_side in losses.items():
        apart = float(((torch.stack(of_side) - first) / first).abs().max())
        if apart > 1e-4:
            sys.exit(f"moe.py: rank {rank}: losses of {name} are apart from PyTorch's by {apart:.1e}")
    if rank == 0:
        mixtures = [one for one in nets["dear none"].modules() if isinstance(one, dear.MoE)]
        mixture = mixtures[0]
        rows = samples.numel() // options.width // len(mixture.inputs)
        x, times = torch.randn(rows, options.width), []
        for _ in range(20):
            begin = time.perf_counter()
            for a, b in zip(mixture.inputs.detach(), mixture.outputs.detach()):
                functional.gelu(x @ a.t()) @ b.t()
            times.append(time.perf_counter() - begin)
        travels = statistics.median(waits["dear none"]) / (4 * len(mixtures))
        print(f"an all-to-all travels {travels / statistics.median(times):.1f} times as long as experts compute")
        rival = statistics.median(seconds["PyTorch, Gloo"])
        for name in steps:
            median, waited = statistics.median(seconds[name]), statistics.median(waits[name])
            predicted = ""
            if name in ("dear weights", "dear lancet"):
                report = nets[name].overlap_report()
                waits_of = report["waited_seconds"] - report["hidden_seconds"]
                predicted = f"; predicted {1e3 * report['iteration_seconds']:.1f}, of it {1e3 * waits_of:.1f}"
            print(
                f"{name:14} {1e3 * median:7.1f} ms a step, {1e3 * waited:6.1f} ms of it waits, {rival / median:.2f} times as fast"
                + predicted
            )
    for one in nets.values():
        if isinstance(one, dear.DataParallel):
            one.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
