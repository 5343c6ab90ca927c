"""Threads and hooks that read a model while it trains: nobody waits for itself, nor for who waits for him.  threads_test.py DEAR

A second thread copies, saves and reads the model, past the operators too, while the first one trains it. Under `DEAR launch`
this file is the program of each rank.
"""

from __future__ import annotations

import contextlib
import copy
import faulthandler
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import dear

STEPS, FEW = 1000, 100
POLICIES = ("dear", "wfbp", "serial", "dear-eager")


class Own(torch.optim.Optimizer):
    """SGD of the user's own, which reads its parameters past the operators."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    read(parameter)
                    read(parameter.grad)
                    parameter.add_(parameter.grad, alpha=-group["lr"])


def read(tensor: Tensor) -> None:
    tensor.data_ptr()
    if tensor.device.type == "cpu":
        tensor.tolist()
        tensor.detach().numpy()
    copy.deepcopy(tensor.detach())


def read_all(net: nn.Module) -> None:
    for parameter in net.parameters():
        read(parameter)
        if parameter.grad is not None:
            read(parameter.grad)


class Training:
    """`optimiser`: "known", or what to give as update= for one of the user's own."""

    def __init__(self, device: str, optimiser: str, **options: Any) -> None:
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)
        self.batch = torch.ones(2, 8).to(device)
        if optimiser == "known":
            mine: torch.optim.Optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        else:
            mine, options["update"] = Own(self.net.parameters()), optimiser
        self.model, self.optimizer = dear.distribute(self.net, mine, fusion="layer", timeout=20, **options)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.batch).square().mean().backward()
        self.optimizer.step()


@contextlib.contextmanager
def reader(net: nn.Module) -> Iterator[list[int]]:
    """A thread that reads the model; gives how often, in the end."""
    over = threading.Event()
    rounds: list[int] = [0]
    errors: list[BaseException] = []

    def run() -> None:
        try:
            while not over.wait(0.001):
                copy.deepcopy(net)
                torch.save(net.state_dict(), io.BytesIO())
                for parameter in net.parameters():  # no gradients, which another thread may drop meanwhile
                    read(parameter)
                rounds[0] += 1
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield rounds
    finally:
        over.set()
        thread.join()
    assert not errors, errors


def beside(device: str, optimiser: str, steps: int, **options: Any) -> None:
    training = Training(device, optimiser, **options)
    for _ in range(3):
        training.step()
    with reader(training.net) as rounds:
        for _ in range(steps):
            training.step()
    training.model.synchronize()
    assert rounds[0] > 0
    training.model.close()


def in_hooks(device: str, optimiser: str, **options: Any) -> None:
    training = Training(device, optimiser, **options)
    calls: set[str] = set()
    net, model, optimizer = training.net, training.model, training.optimizer

    def hook(name: str) -> Callable[..., None]:
        def run(*_: Any) -> None:
            calls.add(name)
            read_all(net)

        return run

    for parameter in net.parameters():
        parameter.register_hook(hook("gradient"))
        parameter.register_post_accumulate_grad_hook(hook("accumulated"))
    for layer in net:
        layer.register_forward_pre_hook(hook("before forward"))
        layer.register_forward_hook(hook("after forward"))
    net[2].register_full_backward_hook(hook("backward"))
    model.register_bucket_hook(hook("before reduction"), "before")
    model.register_bucket_hook(hook("after reduction"), "after")
    model.on_step(hook("on_step"))
    optimizer.register_step_pre_hook(hook("before step"))
    optimizer.register_step_post_hook(hook("after step"))
    for _ in range(4):
        training.step()
    model.synchronize()
    assert len(calls) == 10, calls
    model.close()


def on_the_cpu() -> None:
    for policy in POLICIES:
        beside("cpu", "known", STEPS, policy=policy)
        for update in ("program", "sharded"):
            beside("cpu", update, FEW, policy=policy)
    for policy in POLICIES[:3]:  # dear-eager refuses such reads in one sentence
        for optimiser in ("known", "program", "sharded"):
            in_hooks("cpu", optimiser, policy=policy)


def on_the_stub_device() -> None:
    beside("stub", "known", STEPS)
    for update in ("program", "sharded"):
        beside("stub", update, FEW)
    for optimiser in ("known", "program", "sharded"):
        in_hooks("stub", optimiser)


def main() -> int:
    if "RANK" in os.environ:
        torch.set_num_threads(1)
        faulthandler.dump_traceback_later(150, exit=True)
        if sys.argv[1] == "cpu":
            on_the_cpu()
            return 0
        sys.path.append(str(Path(sys.argv[2]).parent / "python_testing"))
        from stub_registration import register

        register()
        dear.init_process_group(say=lambda _: None)
        on_the_stub_device()
        torch.distributed.destroy_process_group()
        return 0
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for device in ("cpu", "stub"):
        program = [sys.argv[1], "launch", "-n", "2", sys.executable, "-B", __file__, device, sys.argv[1]]
        status = subprocess.run(program, env=environment, check=False, timeout=200).returncode
        if status != 0:
            print(f"{device}: exit code {status}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
