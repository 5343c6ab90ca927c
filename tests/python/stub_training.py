"""Training on the stub device by a plain program in Python: tests that stub_device_test.py runs.

What dear.distribute() trains there is compared, to the bit, with what plain PyTorch trains with an all-reduce of all
gradients before each step, on the device or on the CPU; and the waits of the host are counted.
"""

import contextlib
import io
import unittest
from collections.abc import Callable
from typing import Any

import dear_stub_device as stub
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import dear
from dear import _streams

STEPS = 6


class Net(nn.Module):
    """Two blocks of two layers, and a head; with `checkpointed`, activations of the blocks are computed anew."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 40), nn.Tanh(), nn.Linear(40, 8)) for _ in range(2))
        self.head = nn.Linear(8, 3)
        self.checkpointed: bool | None = None  # use_reentrant, or None for no checkpoint

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x) if self.checkpointed is None else checkpoint(block, x, use_reentrant=self.checkpointed)
        return self.head(x)


class Job:
    """A model and its optimiser on a device: trained by DeAR, or by plain PyTorch."""

    def __init__(self, device: str, optimizer_of: Any, plain: bool, options: dict[str, Any]) -> None:
        torch.manual_seed(1)
        self.plain = plain
        self.device = device
        self.model: Any = Net().to(device)
        self.optimizer: Any = optimizer_of(self.model.parameters())
        self.scaler = torch.amp.GradScaler(device, init_scale=64.0, growth_interval=2)
        self.waits = 0
        generator = torch.Generator().manual_seed(dist.get_rank())
        self.batches = [torch.randn(4, 8, generator=generator).requires_grad_() for _ in range(STEPS)]
        self.batches = [batch.detach().to(device).requires_grad_() for batch in self.batches]
        self.infinity = torch.tensor(float("inf")).to(device)
        if not plain:
            self.model, self.optimizer = dear.distribute(self.model, self.optimizer, **{"fusion": "2KiB", **options})

    def loss(self, step: int) -> Tensor:
        return self.model(self.batches[step]).float().square().mean()

    def reduce(self) -> None:
        """Plain PyTorch's part of a step that DeAR does by itself."""
        if self.plain:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    dist.all_reduce(parameter.grad)
                    parameter.grad.div_(dist.get_world_size())

    def step(self) -> None:
        self.reduce()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def end(self) -> list[Tensor]:
        if not self.plain:
            self.model.close()
        return [parameter.detach().cpu().clone() for parameter in self.model.parameters()]


Program = Callable[[Job], None]


def run(
    program: Program, optimizer_of: Any, device: str = "stub", plain: bool = False, **options: Any
) -> tuple[Any, int]:
    """What the parameters are at the end, and how often the host waited in the steps but the first two."""
    job = Job(device, optimizer_of, plain, options)
    program(job)
    return job.end(), job.waits


def each_step(take: Callable[[Job, int], None]) -> Program:
    def program(job: Job) -> None:
        before = 0
        for step in range(STEPS):
            if step == 2:
                before = stub.host_waits()
            take(job, step)
        job.waits = stub.host_waits() - before

    return program


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adamw(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=0.01)


def fused_sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.1, fused=True)


def fused_adamw(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=0.01, fused=True)


class OnTheStubDevice(unittest.TestCase):
    def setUp(self) -> None:
        stub.set_delays(seed=dist.get_rank(), largest_seconds=5e-5)

    def assertAsPlain(
        self, program: Program, optimizer_of: Any = sgd, device: str = "stub", waits: int = 0, **options: Any
    ) -> None:
        """DeAR on the stub device, against plain PyTorch on `device`."""
        found, waited = run(program, optimizer_of, **options)
        expected, _ = run(program, optimizer_of, device=device, plain=True)
        for mine, theirs in zip(found, expected):
            self.assertTrue(torch.equal(mine, theirs), (options, (mine - theirs).abs().max()))
        self.assertEqual(waited, waits)

    def test_steps_of_each_policy_are_those_of_the_cpu(self) -> None:
        def take(job: Job, step: int) -> None:
            job.loss(step).backward()
            job.step()

        for policy in ("dear", "dear-replicated", "wfbp", "serial"):
            self.assertAsPlain(each_step(take), adamw, device="cpu", policy=policy)
        for optimizer_of in (sgd, fused_sgd, fused_adamw):
            self.assertAsPlain(each_step(take), optimizer_of, device="cpu")

    def test_buckets_that_are_tuned_change_no_bit(self) -> None:
        sizes = set()

        def program(job: Job) -> None:
            for step in range(60):
                job.loss(step % STEPS).backward()
                job.step()
                if not job.plain:
                    sizes.add(job.model.statistics()["buckets"])

        found, _ = run(program, adamw, fusion="auto=2KiB")
        expected, _ = run(program, adamw, plain=True)
        for mine, theirs in zip(found, expected):
            self.assertTrue(torch.equal(mine, theirs), (mine - theirs).abs().max())
        self.assertGreater(len(sizes), 1, "no other buckets were tried")

    def test_accumulation_schedulers_and_evaluation(self) -> None:
        def program(job: Job) -> None:
            scheduler = torch.optim.lr_scheduler.StepLR(job.optimizer, 1, 0.5)

            def take(job: Job, step: int) -> None:
                with contextlib.nullcontext() if job.plain else job.model.no_sync():
                    job.loss(step).backward()
                job.loss(step - 1).backward()
                job.step()
                scheduler.step()
                with torch.no_grad():
                    job.loss(step)

            each_step(take)(job)

        self.assertAsPlain(program)

    def test_autocast_and_checkpointed_activations(self) -> None:
        def take(job: Job, step: int) -> None:
            with torch.autocast("stub", torch.bfloat16):
                loss = job.loss(step)
            loss.backward()
            job.step()

        def checkpointed(use_reentrant: bool) -> Program:
            def program(job: Job) -> None:
                (job.model if job.plain else job.model.module).checkpointed = use_reentrant
                each_step(take)(job)

            return program

        self.assertAsPlain(each_step(take))
        for use_reentrant in (True, False):
            self.assertAsPlain(checkpointed(use_reentrant))

    def test_a_grad_scaler_gives_steps_up_on_the_device(self) -> None:
        def overflows(step: int, *steps: int) -> bool:
            return step in steps and dist.get_rank() == 1

        def scaled(*overflow: int) -> Program:
            def take(job: Job, step: int) -> None:
                loss = job.scaler.scale(job.loss(step))
                (loss * job.infinity if overflows(step, *overflow) else loss).backward()
                job.reduce()
                if step % 2:
                    job.scaler.unscale_(job.optimizer)
                job.scaler.step(job.optimizer)
                job.scaler.update()
                job.optimizer.zero_grad()

            return each_step(take)

        # The first step that is taken is the host's decision; Adam's first overflow comes before it.
        self.assertAsPlain(scaled(0, 2, 5), fused_adamw)
        self.assertAsPlain(scaled(2, 3), fused_sgd)
        self.assertAsPlain(scaled(3), fused_adamw, policy="wfbp", fp32_masters=True)
        # Others need the host's decision: in four steps a wait for what was found, and in two of them one for the scale, too.
        self.assertAsPlain(scaled(3), adamw, waits=6)

    def test_state_after_steps_that_the_device_gave_up(self) -> None:
        def program(job: Job) -> None:
            for step in range(3):
                loss = job.scaler.scale(job.loss(step))
                (loss * job.infinity if step == 1 else loss).backward()
                job.reduce()
                job.scaler.step(job.optimizer)
                job.scaler.update()
                job.optimizer.zero_grad()
            state = job.optimizer.state_dict()["state"]
            self.assertEqual({float(one["step"]) for one in state.values()}, {2.0})
            self.assertEqual(job.scaler.get_scale(), 32.0)
            job.optimizer.load_state_dict(job.optimizer.state_dict())
            for step in range(3, STEPS):
                job.scaler.scale(job.loss(step)).backward()
                job.reduce()
                job.scaler.step(job.optimizer)
                job.scaler.update()
                job.optimizer.zero_grad()

        self.assertAsPlain(program, fused_adamw)

    def test_the_ranks_are_told_what_carries_the_model(self) -> None:
        _streams._say.cache_clear()
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            for _ in range(2):
                run(lambda job: None, sgd)
        expected = (
            "dear: a model on stub:0 trains over c10d stub, the backend that the process group has for stub; what the hosts "
            "tell each other goes over shm\n"
        )
        self.assertEqual(said.getvalue(), "" if dist.get_rank() else expected)
