"""Training on streams through the package, on the CPU, where a stream is the host's own order:  streams_test.py

No device with streams is there. So a module on the CPU is given the collectives of its process group, as one on a GPU is:
what is compared is the way through Python and the engine. The C++ tests look at the order of streams.
"""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
import unittest
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import dear
from dear import _C, _streams


def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 40), nn.Tanh(), nn.Linear(40, 24), nn.Tanh(), nn.Linear(24, 3))


def loss_of(model: nn.Module, step: int) -> Tensor:
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    return model(torch.randn(4, 8, generator=generator)).square().mean()


def trained(steps: Callable[[Any, Any], None], optimizer_of: Any, streams: bool, **options: Any) -> list[Tensor]:
    model = net()
    optimizer = optimizer_of(model.parameters())
    original = _streams.collectives_of
    if streams:
        _streams.collectives_of = lambda *_: _C.stream_collectives(dist.group.WORLD, "cpu")
    try:
        model, optimizer = dear.distribute(model, optimizer, fusion="2KiB", **options)
    finally:
        _streams.collectives_of = original
    steps(model, optimizer)
    model.close()
    return [parameter.detach().clone() for parameter in model.module.parameters()]


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adamw(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=0.01)


class OnStreams(unittest.TestCase):
    def assertAsOnTheCpu(self, steps: Callable[[Any, Any], None], optimizer_of: Any = sgd, **options: Any) -> None:
        found = trained(steps, optimizer_of, True, **options)
        for mine, expected in zip(found, trained(steps, optimizer_of, False, **options)):
            torch.testing.assert_close(mine, expected, rtol=0, atol=0)

    def test_steps_with_every_policy(self) -> None:
        def steps(model: Any, optimizer: Any) -> None:
            for step in range(4):
                optimizer.zero_grad()
                loss_of(model, step).backward()
                optimizer.step()

        for policy in ("dear", "dear-replicated", "wfbp", "serial"):
            for optimizer_of in (sgd, adamw):
                self.assertAsOnTheCpu(steps, optimizer_of, policy=policy)

    def test_accumulation_schedulers_and_evaluation(self) -> None:
        def steps(model: Any, optimizer: Any) -> None:
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
            for step in range(3):
                with model.no_sync():
                    loss_of(model, step).backward()
                loss_of(model, 10 + step).backward()
                optimizer.step()
                scheduler.step()
                with torch.no_grad():
                    loss_of(model, 20)
                optimizer.zero_grad()

        self.assertAsOnTheCpu(steps)

    def test_state_is_saved_and_loaded(self) -> None:
        def steps(model: Any, optimizer: Any) -> None:
            loss_of(model, 0).backward()
            optimizer.step()
            kept = model.state_dict(), optimizer.state_dict()
            for step in (1, 2):
                loss_of(model, step).backward()
                optimizer.step()
            model.load_state_dict(kept[0])
            optimizer.load_state_dict(kept[1])
            loss_of(model, 3).backward()
            optimizer.step()

        self.assertAsOnTheCpu(steps, adamw)

    def test_clipping_autocast_and_a_grad_scaler(self) -> None:
        norms: list[Tensor] = []

        def steps(model: Any, optimizer: Any) -> None:
            scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
            for step in range(3):
                with torch.autocast("cpu", torch.bfloat16):
                    loss = loss_of(model, step)
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                norms.append(optimizer.clip_grad_norm_(0.05))
                scaler.step(optimizer)
                scaler.update()

        found, expected = trained(steps, sgd, True), trained(steps, sgd, False)
        for mine, theirs in zip(found, expected):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(norms[:3], norms[3:], rtol=1e-6, atol=0)

    def test_checkpointed_activations(self) -> None:
        from torch.utils.checkpoint import checkpoint

        def steps(model: Any, optimizer: Any) -> None:
            for step in range(3):
                values = torch.randn(4, 8, generator=torch.Generator().manual_seed(step + 7 * dist.get_rank()))
                values = checkpoint(model[:3], values, use_reentrant=False)
                model[3:](values).square().mean().backward()
                optimizer.step()

        self.assertAsOnTheCpu(steps)

    def test_gradients_that_travel_encoded(self) -> None:
        def steps(model: Any, optimizer: Any) -> None:
            for step in range(3):
                values = torch.randn(4, 8, generator=torch.Generator().manual_seed(step + 7 * dist.get_rank()))
                model(values).square().mean().backward()
                optimizer.step()
            assert model.compression_report()["steps"] > 0

        self.assertAsOnTheCpu(steps, compression="top-k:0.2,ef,dense-below=16")

    def test_refusals(self) -> None:
        for option in ({"policy": "dear-eager"}, {"one_copy": True}, {"record_trace": True}):
            with self.assertRaisesRegex(dear.ConfigError, "streams"):
                trained(lambda *_: None, sgd, True, **option)


def main() -> int:
    if "RANK" in os.environ:
        faulthandler.dump_traceback_later(100, exit=True)
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        result = unittest.main(exit=False, argv=[sys.argv[0]], failfast=True).result
        if not result.wasSuccessful():
            os._exit(1)  # the others may be in a collective
        dist.destroy_process_group()
        return 0
    launch = [sys.executable, "-B", "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([*launch, os.path.realpath(__file__)], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
