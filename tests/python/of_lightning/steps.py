"""Clipping, precisions, manual optimisation and several optimisers."""

from __future__ import annotations

from typing import Any

import torch
from dear.lightning import DearStrategy
from lightning.pytorch.plugins import MixedPrecision
from torch import nn

import dear

from .registry import Net, as_ddp, behaviour, fit, lightning, refuses, trainer


@behaviour(
    "test_gradient_clipping_by_norm", "gradient_clip_val by norm", "as DDP, to 1e-6: the norm is added up in fp64"
)
def clip_by_norm() -> None:
    as_ddp(Net, exactly=False, gradient_clip_val=0.2)


@behaviour("test_gradient_clipping_by_value", "gradient_clip_val by value")
def clip_by_value() -> None:
    as_ddp(Net, gradient_clip_val=0.01, gradient_clip_algorithm="value")


@behaviour(
    "test_configure_gradient_clipping", "a module's own configure_gradient_clipping(), that calls clip_gradients()"
)
def own_clipping() -> None:
    class Clips(Net):
        def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
            limit = 0.2 if self.trainer.global_step > 1 else 0.1
            self.clip_gradients(optimizer, gradient_clip_val=limit, gradient_clip_algorithm="norm")

    as_ddp(Clips, exactly=False)


@behaviour("test_gradient_clipping_bf16, test_amp_cpus", "bf16-mixed, with and without clipping")
def bf16_mixed() -> None:
    as_ddp(Net, precision="bf16-mixed")
    as_ddp(Net, exactly=False, precision="bf16-mixed", gradient_clip_val=0.2)


@behaviour(
    "test_cpu_amp_precision_16_throws", "16-mixed on the CPU", "as Lightning: it warns, and trains in bf16-mixed"
)
def fp16_mixed_on_the_host() -> None:
    assert trainer("dear", precision="16-mixed").precision == "bf16-mixed"


@behaviour(
    "test_ddp_wrapper[16-mixed], test_amp_gradient_unscale", "16-mixed with a GradScaler of the program's, and clipping"
)
def fp16_mixed_with_a_scaler() -> None:
    def scaled() -> dict[str, Any]:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=3)
        return {"plugins": [MixedPrecision("16-mixed", "cpu", scaler)], "gradient_clip_val": 0.2}

    as_ddp(Net, exactly=False, options=scaled, max_epochs=2)


@behaviour("test_amp_gradient_unscale_accumulate_grad", "16-mixed with a hook that reads gradients, and accumulation")
def fp16_mixed_with_a_hook() -> None:
    class Reads(Net):
        def on_before_optimizer_step(self, optimizer: Any) -> None:
            assert all(one.grad.isfinite().all() for one in self.parameters())

    def scaled() -> dict[str, Any]:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
        return {"plugins": [MixedPrecision("16-mixed", "cpu", scaler)], "accumulate_grad_batches": 2}

    as_ddp(Reads, exactly=False, options=scaled)


class Manual(Net):
    def __init__(self, clip: bool = False) -> None:
        super().__init__()
        self.automatic_optimization, self.clip = False, clip

    def training_step(self, batch: Any, index: int) -> Any:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = super().training_step(batch, index)
        self.manual_backward(loss)
        if self.clip:
            self.clip_gradients(optimizer, 0.2, "norm")
        optimizer.step()


@behaviour("test_multiple_optimizers_manual (one)", "manual optimisation, with clip_gradients()")
def manual() -> None:
    as_ddp(Manual)
    as_ddp(lambda: Manual(clip=True), exactly=False)


@behaviour(
    "test_step_with_optimizer_closure_with_different_frequencies_ddp",
    "manual accumulation by toggle_model(sync_grad=False)",
)
def manual_accumulation() -> None:
    class Accumulates(Net):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, index: int) -> Any:
            optimizer = self.optimizers()
            last = index % 2 == 1
            with optimizer.toggle_model(sync_grad=last):
                self.manual_backward(super().training_step(batch, index))
            if last:
                optimizer.step()
                optimizer.zero_grad()

    as_ddp(Accumulates)


class Gan(lightning.LightningModule):
    """A generator and a discriminator in one module, each with an optimiser and a scheduler of its own."""

    def __init__(self, toggle: bool, clip: bool = False) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.automatic_optimization, self.toggle, self.clip = False, toggle, clip
        self.generator = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 8))
        self.discriminator = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 1))
        self.seen: list[float] = []

    def turn(self, optimizer: Any, loss: Any) -> None:
        if self.toggle:
            self.toggle_optimizer(optimizer)
        optimizer.zero_grad()
        value = loss()
        self.manual_backward(value)
        if self.clip:
            self.clip_gradients(optimizer, 0.1, "norm")
        optimizer.step()
        if self.toggle:
            self.untoggle_optimizer(optimizer)
        self.seen.append(value.item())

    def training_step(self, batch: Any, index: int) -> None:
        x = batch[0]
        for_generator, for_discriminator = self.optimizers()
        self.turn(
            for_discriminator, lambda: (self.discriminator(self.generator(x).detach()) - self.discriminator(x)).mean()
        )
        self.turn(for_generator, lambda: -self.discriminator(self.generator(x)).tanh().mean())
        if not self.toggle:
            for_discriminator.zero_grad()
        for schedule in self.lr_schedulers():
            schedule.step()

    def configure_optimizers(self) -> Any:
        both = [
            torch.optim.Adam(one.parameters(), 0.01, betas=(0.5, 0.9)) for one in (self.generator, self.discriminator)
        ]
        return both, [torch.optim.lr_scheduler.StepLR(one, 3, 0.5) for one in both]


@behaviour(
    "(users) GANs, test_multiple_optimizers_toggle",
    "several optimisers, in turns, each with a scheduler and clipping",
    "as DDP with find_unused_parameters, to 1e-6; plain DDP refuses",
)
def gan() -> None:
    for toggle in (True, False):
        as_ddp(lambda: Gan(toggle), exactly=False, ddp_strategy="ddp_find_unused_parameters_true", max_epochs=2)
    as_ddp(lambda: Gan(True, clip=True), exactly=False, ddp_strategy="ddp_find_unused_parameters_true")


@behaviour(
    "(users) one parameter in two optimisers",
    "a parameter that two optimisers would train, or none",
    "refused, with its name",
)
def parameters_of_parts() -> None:
    class Twice(Gan):
        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(self.parameters(), 0.1), torch.optim.SGD(self.discriminator.parameters(), 0.1)]

    class Nobodys(Gan):
        def configure_optimizers(self) -> Any:
            return [
                torch.optim.SGD(self.generator.parameters(), 0.1),
                torch.optim.SGD(self.discriminator[0].parameters(), 0.1),
            ]

    refuses(dear.ConfigError, lambda: fit("dear", Twice(True)), "'discriminator.0.weight'", "0 and 1")
    refuses(dear.ConfigError, lambda: fit("dear", Nobodys(True)), "'discriminator.2.weight'", "freeze")


@behaviour(
    "test_ddp_optimizer (any optimiser)",
    "an optimiser that must see whole tensors",
    'with ownership="auto", which the strategy takes',
)
def whole_tensors() -> None:
    class WithAdafactor(Net):
        def configure_optimizers(self) -> Any:
            return torch.optim.Adafactor(self.parameters(), lr=0.05)

    as_ddp(WithAdafactor, exactly=False, dear_strategy=DearStrategy(ownership="auto"))


@behaviour(
    "test_ddp_fp16_compress_comm_hook, test_ddp_sgd_comm_hook",
    "gradients that travel compressed",
    'by compression="bf16"; ddp_comm_hook= is refused, with that remedy',
)
def compressed() -> None:
    exact, compressed = fit("dear", Net()), fit(DearStrategy(compression="bf16,dense-below=1"), Net())
    assert exact.losses[0] == compressed.losses[0] and exact.losses[2:] != compressed.losses[2:]
    assert all(abs(one - other) < 0.02 for one, other in zip(exact.losses, compressed.losses))
    refuses(dear.ConfigError, lambda: DearStrategy(ddp_comm_hook=print), "ddp_comm_hook", "compression=")
