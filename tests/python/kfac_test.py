"""dear.KFAC gives what K-FAC gives on one process and the union of all batches:  kfac_test.py DEAR

Under `DEAR launch` this file is the program of each rank.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable
from typing import Any

import torch
from kfac_reference import ReferenceKfac
from torch import Tensor, nn

import dear

RANKS = 3
STEPS = 20
TOLERANCE = 1e-10  # relative, in fp64


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 5, bias=False), nn.Tanh(), nn.Linear(5, 3))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1),
        nn.Tanh(),
        nn.Conv2d(4, 3, 2, bias=False),
        nn.Flatten(),
        nn.Linear(12, 3),
    )


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 6)
        self.shared = nn.Linear(6, 6)
        self.unused = nn.Linear(6, 6)
        self.last = nn.Linear(6, 3)

    def forward(self, samples: Tensor) -> Tensor:
        tokens = self.table(samples[:, :4].abs().mul(3).long() % 8)  # of rank 3: every token is a sample
        return self.last(torch.tanh(self.shared(torch.tanh(self.shared(tokens)))).mean(1))


SHAPES: dict[Callable[[], nn.Module], tuple[int, ...]] = {perceptron: (6,), convolutions: (2, 6, 6), Twice: (6,)}


def batch(step: int, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return (
        torch.randn(4 * RANKS, *shape, generator=generator, dtype=torch.float64),
        torch.randint(3, (4 * RANKS,), generator=generator),
    )


class Job:
    """The same model, with a KFAC of ours on this rank's share of each batch, or alone with the reference on all."""

    def __init__(self, make: Callable[[], nn.Module], group: Any, policy: str = "wfbp", **options: Any) -> None:
        torch.manual_seed(1)
        net = make().double()
        self.shape = SHAPES[make]
        self.optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        self.model, self.optimizer = dear.distribute(
            net, self.optimizer, process_group=group, policy=policy, fusion="128B", profile_steps=1
        )
        self.kfac = dear.KFAC(self.model, **{"damping": 1e-2, **options})

    def train(self, first: int, steps: int, passes: int = 1) -> Tensor:
        for step in range(first, first + steps):
            samples, labels = batch(step, self.shape)
            mine = slice(4 * self.model.rank, 4 * self.model.rank + 4)
            parts = list(zip(samples[mine].chunk(passes), labels[mine].chunk(passes)))
            for number, (rows, classes) in enumerate(parts):
                with self.model.no_sync() if number + 1 < passes else contextlib.nullcontext():
                    (nn.functional.cross_entropy(self.model(rows), classes) / passes).backward()
            self.kfac.step(loss_scale=1 / passes)
            self.optimizer.step()
        return weights(self.model.module)


def weights(model: nn.Module) -> Tensor:
    return torch.cat([value.detach().flatten() for value in model.state_dict().values()])


def alone(make: Callable[[], nn.Module], steps: int = STEPS, **options: Any) -> Tensor:
    torch.manual_seed(1)
    net = make().double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    kfac = ReferenceKfac(net, **{"damping": 1e-2, **options})
    for step in range(steps):
        samples, labels = batch(step, SHAPES[make])
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(samples), labels).backward()
        kfac.step(0.05)
        optimizer.step()
    return weights(net)


class Kfac(unittest.TestCase):
    def setUp(self) -> None:
        torch.set_num_threads(1)
        self.group = dear.init()

    def assertNear(self, found: Tensor, expected: Tensor) -> None:
        self.assertLess(float((found - expected).norm() / expected.norm()), TOLERANCE)

    def test_every_strategy_gives_what_one_process_gives(self) -> None:
        expected = alone(perceptron)
        for strategy in ("d-kfac", "mpd-kfac", "mpd-kfac-owner", "spd-kfac", "spd-kfac-owner"):
            with self.subTest(strategy):
                self.assertNear(Job(perceptron, self.group, strategy=strategy).train(0, STEPS), expected)

    def test_every_policy_carries_the_gradients(self) -> None:
        expected = alone(perceptron)
        for policy in ("serial", "dear", "dear-replicated"):
            with self.subTest(policy):
                job = Job(perceptron, self.group, policy=policy)
                job.train(0, STEPS)
                job.model.synchronize()
                self.assertNear(weights(job.model.module), expected)

    def test_convolutions_and_layers_that_are_used_twice_or_never(self) -> None:
        self.assertNear(Job(convolutions, self.group).train(0, STEPS), alone(convolutions))
        twice = Job(Twice, self.group, exclude=["unused"])
        self.assertNear(twice.train(0, STEPS), alone(Twice, exclude=("unused",)))
        self.assertIn("unused", twice.kfac.report()["left_out"])

    def test_pi_correction_and_no_clipping(self) -> None:
        for options in ({"pi": True}, {"kl_clip": None}):
            with self.subTest(options):
                ours = {"pi_correction": True} if "pi" in options else options
                self.assertNear(Job(perceptron, self.group, **ours).train(0, STEPS), alone(perceptron, **options))

    def test_several_passes_make_a_step(self) -> None:
        self.assertNear(Job(perceptron, self.group).train(0, STEPS, passes=2), alone(perceptron))

    def test_a_loaded_state_goes_on_as_if_nothing_had_been(self) -> None:
        whole = Job(perceptron, self.group, factor_every=2, inverse_every=4, replan_after=0)
        first = Job(perceptron, self.group, factor_every=2, inverse_every=4, replan_after=0)
        second = Job(perceptron, self.group, factor_every=2, inverse_every=4, replan_after=0)
        expected = whole.train(0, 10)
        first.train(0, 5)
        second.model.load_state_dict(first.model.state_dict())
        second.optimizer.load_state_dict(first.optimizer.state_dict())
        second.kfac.load_state_dict(first.kfac.state_dict())
        self.assertNear(second.train(5, 5), expected)

    def test_more_passes_than_in_any_step_before_are_counted(self) -> None:
        job = Job(perceptron, self.group)
        job.train(0, 2, passes=1)
        self.assertEqual(job.kfac.report()["late_uses"], 0)
        job.train(2, 1, passes=2)
        late = job.kfac.report()["late_uses"]
        self.assertGreater(late, 0)
        job.train(3, 2, passes=2)
        self.assertEqual(job.kfac.report()["late_uses"], late)

    def test_it_ends_with_the_training(self) -> None:
        job = Job(perceptron, self.group)
        job.train(0, 2)
        job.model.close()
        with self.assertRaisesRegex(dear.ConfigError, "closed"):
            job.kfac.step()
        nn.functional.cross_entropy(job.model.module(batch(0, (6,))[0]), batch(0, (6,))[1]).backward()

    def test_states_of_different_steps_are_refused_on_every_rank(self) -> None:
        job = Job(perceptron, self.group)
        job.train(0, 2)
        state = job.kfac.state_dict()
        state["steps"] = torch.tensor(2 + self.group.rank)
        with self.assertRaisesRegex(dear.MismatchError, "steps"):
            job.kfac.load_state_dict(state)
        del state["steps"]
        if self.group.rank == 0:
            state["steps"] = torch.tensor(2)
        with self.assertRaisesRegex(dear.Error, "steps"):
            job.kfac.load_state_dict(state)

    def test_checkpoints_keep_it(self) -> None:
        whole, first, second = (Job(perceptron, self.group, ema=0.5) for _ in range(3))
        expected = whole.train(0, 8)
        first.train(0, 4)
        path = os.path.join(os.environ["FOLDER"], "saved.pt")
        dear.save(path, first.model, 4, extra={"kfac": first.kfac})
        dear.load(path, second.model, extra={"kfac": second.kfac})
        self.assertNear(second.train(4, 4), expected)

    def test_what_cannot_be_is_refused_on_every_rank(self) -> None:
        for options, word in (
            ({"damping": 0.0}, "damping"),
            ({"ema": 1.0}, "average"),
            ({"kl_clip": 0.0}, "or none$"),
            ({"factor_every": 2, "inverse_every": 3}, "inverse"),
            ({"strategy": "x-kfac"}, "x-kfac"),
            ({"exclude": ["nothing"]}, "nothing"),
            ({"largest_factor": 4}, "exclude"),
            ({"exclude": "0"}, "list"),
            ({"policy": "dear-eager"}, r"K-FAC's step\(\).*dear-eager"),
            ({"damping": 1e31}, "1e"),
        ):
            with self.subTest(options), self.assertRaisesRegex(dear.ConfigError, word):
                Job(perceptron, self.group, **options)
        with self.assertRaisesRegex(dear.ConfigError, "distribute"):
            dear.KFAC(perceptron())  # type: ignore[arg-type]

    def test_inverses_are_renewed_as_often_as_factors(self) -> None:
        both = Job(perceptron, self.group, factor_every=4, inverse_every=4).train(0, 9)
        self.assertTrue(torch.equal(Job(perceptron, self.group, factor_every=4).train(0, 9), both))

    def test_it_steps_once_for_each_step_of_the_optimizer(self) -> None:
        job = Job(perceptron, self.group)
        job.train(0, 1)
        with self.assertRaisesRegex(dear.ConfigError, r"K-FAC's step\(\) found no gradient.*step of the optimiser"):
            job.kfac.step()
        with self.assertRaisesRegex(dear.ConfigError, "one K-FAC"):
            dear.KFAC(job.model)
        samples, labels = batch(1, (6,))
        nn.functional.cross_entropy(job.model(samples), labels).backward()
        job.kfac.step()
        with self.assertRaisesRegex(dear.ConfigError, r"K-FAC's step\(\) was called twice"):
            job.kfac.step()
        job.optimizer.step()

    def test_gradients_are_whole_after_reduce_gradients(self) -> None:
        job = Job(perceptron, self.group, policy="dear")
        for step in range(2):
            samples, labels = batch(step, (6,))
            mine = slice(4 * job.model.rank, 4 * job.model.rank + 4)
            nn.functional.cross_entropy(job.model(samples[mine]), labels[mine]).backward()
            job.optimizer.reduce_gradients()
            found = [parameter.grad.clone() for parameter in job.model.parameters()]
            net = perceptron().double()
            net.load_state_dict(job.model.state_dict())
            nn.functional.cross_entropy(net(samples), labels).backward()
            for gradient, parameter in zip(found, net.parameters()):
                torch.testing.assert_close(gradient, parameter.grad, rtol=1e-12, atol=1e-14)
            job.optimizer.step()


if __name__ == "__main__":
    if "RANK" in os.environ:
        faulthandler.dump_traceback_later(200, exit=True)
        unittest.main(argv=sys.argv[:1])
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.argv[1], "launch", "-n", str(RANKS), sys.executable, "-B", __file__]
        sys.exit(subprocess.run(command, env={**os.environ, "FOLDER": folder, "OMP_NUM_THREADS": "1"}).returncode)
