"""The steps of the check, those most worth knowing first."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    name: str
    shows: str
    check: str = ""  # checks/MODULE.py, or a function of it: MODULE:FUNCTION
    ranks: int = 2
    library: str = ""  # that carries memory of the device; "" for the best that works here
    seconds: float = 40  # its deadline


BUILD = Step("build", "the package builds against this PyTorch")

STEPS = (
    Step(
        "two-ranks-stub",
        "two ranks over the stub device's collectives: plain PyTorch's bits",
        "two_ranks",
        library="stub",
    ),
    Step("two-ranks-gloo", "two ranks on one GPU over Gloo: plain PyTorch's bits", "two_ranks", library="gloo"),
    Step("two-ranks-nccl", "two ranks on one GPU over NCCL: plain PyTorch's bits", "two_ranks", library="nccl"),
    Step("policies", "each policy, fused optimisers, accumulation, buckets that are tuned", "policies", seconds=60),
    Step("host-waits", "steps, clipping and a GradScaler without a wait of the host", "host_waits"),
    Step("amp", "autocast in bf16", "amp"),
    Step("grad-scaler", "a GradScaler that gives steps up", "grad_scaler", seconds=60),
    Step("clipping", "gradients clipped by their norm", "clipping"),
    Step("by-the-host", "gradients that travel encoded, and as rows of an embedding", "by_the_host"),
    Step("checkpoints", "saved, loaded, gone on", "checkpoints"),
    Step("recomputing", "activations computed anew", "recomputing"),
    Step(
        "times-mlp-of-two",
        "host, device, waits and overlap of an MLP on two ranks, beside DDP",
        "times:mlp",
        seconds=60,
    ),
    Step("compile", "torch.compile of blocks", "compiling", seconds=90),
    Step("memory-of-two", "most memory on two ranks, beside DDP and FSDP2", "memory", seconds=60),
    Step("out-of-memory", "memory that runs out inside a step", "out_of_memory"),
    Step(
        "raw-pointers",
        "an optimiser that reads raw pointers (on a GPU: a kernel of Triton)",
        "raw_pointers",
        seconds=20,
    ),
    Step("graphs", "a captured graph is refused", "graphs"),
    Step("world-of-one", "one rank: plain PyTorch's bits", "world_of_one", ranks=1),
    Step("times-mlp", "host and device time of an MLP on one rank, beside DDP", "times:mlp", ranks=1),
    Step("times-gpt", "likewise of a GPT", "times:gpt", ranks=1, seconds=60),
    Step("times-resnet", "likewise of a ResNet", "times:resnet", ranks=1, seconds=60),
    Step("memory", "most memory on one rank, beside DDP and FSDP2", "memory", ranks=1),
)
