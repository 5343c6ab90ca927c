"""Devices with streams on which training is measured and checked: CUDA's, and the stub device of the tests.

The checks of tests/gpu use them, too.
"""

from __future__ import annotations

import json
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

Run = Callable[[], object]
WAITS_OF_CUDA = {"cudaDeviceSynchronize", "cudaEventSynchronize", "cudaStreamSynchronize", "cudaMemcpy"}


class NoDevice(Exception):
    """A sentence that says why the device is not here."""


class Device(ABC):
    name: str  # of PyTorch
    libraries: tuple[str, ...]  # backends of torch.distributed that carry its memory, the better one last

    def backend(self, library: str) -> str:
        """What torch.distributed.init_process_group() takes."""
        return f"cpu:gloo,{self.name}:{library}"

    @abstractmethod
    def settle(self) -> None:
        """Returns when the device has run what was enqueued."""

    def host_waits(self) -> int | None:
        """So often has a thread of the host waited for the device so far; None where only a profiler counts it."""
        return None

    @abstractmethod
    def waits_in(self, run: Run) -> int:
        """How often the host waits for the device in a call."""

    def seconds_in(self, run: Run) -> float | None:
        """How long the device takes for what a call enqueues; None where it has no clock."""
        run()
        return None

    def hidden_in(self, run: Run) -> tuple[float, float] | None:
        """Seconds of kernels that communicate, of what a call enqueues, and of these the seconds in which others ran
        beside them; None where nothing records kernels."""
        return None

    @abstractmethod
    def peak_bytes(self, run: Run) -> int | None:
        """How many bytes tensors hold at most in a call beyond those before it; None where nobody counts them."""

    def close(self) -> None:
        """At the end of the process."""


class StubDevice(Device):
    """Its kernels are the CPU's: nothing here says how long anything takes."""

    name = "stub"
    libraries = ("stub",)

    def __init__(self) -> None:
        import dear_stub_device
        from stub_registration import register

        register()
        self._stub = dear_stub_device

    def settle(self) -> None:
        self._stub.settle()

    def host_waits(self) -> int:
        return int(self._stub.host_waits())

    def waits_in(self, run: Run) -> int:
        before = self.host_waits()
        run()
        return self.host_waits() - before

    def set_delays(self, seed: int, largest_seconds: float) -> None:
        self._stub.set_delays(seed=seed, largest_seconds=largest_seconds)

    def peak_bytes(self, run: Run) -> int | None:
        import torch

        before = torch.accelerator.memory_allocated()
        torch.accelerator.reset_peak_memory_stats()
        run()
        self.settle()
        return int(torch.accelerator.max_memory_allocated() - before)

    def close(self) -> None:
        self._stub.finish()


class CudaDevice(Device):
    name = "cuda"
    libraries = ("gloo", "nccl")

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available():
            raise NoDevice("PyTorch has no CUDA device here: choose --device stub")
        self._cuda = torch.cuda
        self._waits_of_profiler: int | None = None

    def settle(self) -> None:
        self._cuda.synchronize()

    def waits_in(self, run: Run) -> int:
        if self._waits_of_profiler is None:  # it synchronises, too
            self._waits_of_profiler = _waits(traced(lambda: None))
        return max(0, _waits(traced(run)) - self._waits_of_profiler)

    def seconds_in(self, run: Run) -> float:
        begin, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    def hidden_in(self, run: Run) -> tuple[float, float]:
        return hidden(traced(run))

    def peak_bytes(self, run: Run) -> int:
        self.settle()
        self._cuda.empty_cache()
        before = self._cuda.memory_allocated()
        self._cuda.reset_peak_memory_stats()
        run()
        self.settle()
        return int(self._cuda.max_memory_allocated() - before)


DEVICES: dict[str, Callable[[], Device]] = {"stub": StubDevice, "cuda": CudaDevice}


def traced(run: Run) -> list[dict[str, Any]]:
    """The events of PyTorch's profiler, as its trace for browsers has them."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        run()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path, encoding="utf-8") as file:
            events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return events


def _waits(events: Iterable[dict[str, Any]]) -> int:
    calls = [event["name"] for event in events if event.get("cat") == "cuda_runtime"]
    if not calls:  # not even that of the profiler's end
        raise NoDevice("PyTorch's profiler sees no calls of CUDA here: without it nothing counts the waits of the host")
    return sum(name in WAITS_OF_CUDA for name in calls)


def hidden(events: Iterable[dict[str, Any]]) -> tuple[float, float]:
    """Seconds of NCCL's kernels in a trace, and of these the seconds in which another kernel ran. Kernels of NCCL do not
    run beside one another: a process group has one stream for them."""
    kernels = [event for event in events if event.get("cat") == "kernel"]
    spans = sorted((event["ts"], event["ts"] + event["dur"], "nccl" in event["name"].lower()) for event in kernels)
    computing: list[tuple[float, float]] = []  # in which at least one other kernel ran
    for begin, end, communicates in spans:
        if communicates:
            continue
        if computing and begin <= computing[-1][1]:
            computing[-1] = (computing[-1][0], max(computing[-1][1], end))
        else:
            computing.append((begin, end))
    total = beside = 0.0
    for begin, end, communicates in spans:
        if communicates:
            total += end - begin
            beside += sum(max(0.0, min(end, until) - max(begin, since)) for since, until in computing)
    return total / 1e6, beside / 1e6
