"""What programs do to whole gradients between backward and step: clipping, scaled losses, mixed precision."""

from __future__ import annotations

import math

import torch
from torch import nn

import dear

from .registry import RANK, WORLD, batch, behaviour, mlp, plain, refuses, same, sgd, square, together

POLICIES = ("serial", "wfbp", "dear-replicated", "dear")


def clipping(clip, norms):
    """An optimiser of two parameter groups that clips before each step, and keeps the norms."""

    def make(model):
        parameters = list(model.parameters())
        groups = [{"params": parameters[::2]}, {"params": parameters[1::2], "lr": 0.05}]
        optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)

        def before(chosen, args, kwargs):
            norms.append(clip(chosen, parameters))

        optimizer.register_step_pre_hook(before)
        return optimizer

    return make


@behaviour(
    "test_clip_grad_norm (FSDP), test_ddp_clip_grad",
    "clipping by the global norm, of any type, over several parameter groups",
    "optimizer.clip_grad_norm_()",
)
def clip_by_norm() -> None:
    for policy in POLICIES:
        for norm_type in (1.0, 2.0, 3.0, math.inf):

            def clip(optimizer, parameters):
                if isinstance(optimizer, dear._optimizer.Distributed):
                    return optimizer.clip_grad_norm_(0.01, norm_type)
                return torch.nn.utils.clip_grad_norm_(parameters, 0.01, norm_type)

            mine, theirs = [], []
            trained = together(mlp, optimizer=clipping(clip, mine), policy=policy)
            same(trained, plain(mlp, optimizer=clipping(clip, theirs)), 1e-6)
            torch.testing.assert_close(torch.stack(mine).float(), torch.stack(theirs))
            trained.close()


@behaviour("test_clip_grad_value_ (torch.nn)", "clipping by value", "optimizer.clip_grad_value_()")
def clip_by_value() -> None:
    def clip(optimizer, parameters):
        if isinstance(optimizer, dear._optimizer.Distributed):
            return optimizer.clip_grad_value_(1e-3)
        return torch.nn.utils.clip_grad_value_(parameters, 1e-3)

    same(together(mlp, optimizer=clipping(clip, [])), plain(mlp, optimizer=clipping(clip, [])))


@behaviour(
    "(users) torch.nn.utils.clip_grad_norm_ on parameters",
    "clipping by PyTorch's own functions, which would see one rank's part of the gradients",
    "refused",
)
def clip_as_in_ddp() -> None:
    model, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer")
    for step in range(2):
        square(model, step, RANK).backward()
        refuses(
            dear.ConfigError,
            lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0),
            "optimizer.clip_grad_norm_()",
        )
        refuses(
            dear.ConfigError,
            lambda: torch.nn.utils.clip_grad_value_(model.parameters(), 1.0),
            "optimizer.clip_grad_value_()",
        )
        optimizer.step()
    other = nn.Linear(3, 3)
    other(torch.ones(3)).sum().backward()
    torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)  # of no DataParallel
    model.close()
    square(made, 0, RANK).backward()
    torch.nn.utils.clip_grad_norm_(made.parameters(), 1.0)


@behaviour(
    "test_clip_grad_norm_error_if_nonfinite (torch.nn)",
    "a norm that is NaN or infinite because of one rank; what cannot be clipped",
    "error_if_nonfinite, on all ranks alike",
)
def clip_not_finite() -> None:
    model, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer")
    for step in range(3):
        (square(model, step + 70, RANK) * (math.inf if RANK == step % 2 else 1)).backward()
        refuses(dear.ConfigError, lambda: optimizer.clip_grad_norm_(-1.0), "-1")
        refuses(dear.ConfigError, lambda: optimizer.clip_grad_norm_(1.0, 2.0, True), f"rank {RANK}", "norm")
        assert not torch.isfinite(optimizer.clip_grad_norm_(1.0))
        optimizer.zero_grad()
        square(model, step, RANK).backward()
        optimizer.step()
    same(model, plain(mlp, steps=3))
    kept, eager = dear.distribute(made := mlp(), sgd(made), fusion="layer", policy="dear-eager")
    refuses(dear.ConfigError, lambda: eager.clip_grad_norm_(1.0), "dear-eager")
    kept.close()


def adamw(model, **how):
    return torch.optim.AdamW(model.parameters(), 0.01, **how)


@behaviour(
    "test_ddp_grad_scaler, test_grad_scaler_*",
    "GradScaler: an overflow on one rank skips the step, and lowers the scale, on all",
)
def grad_scaler() -> None:
    applied = [0, 2, 3, 5]

    def only_applied(model, step, rank):
        return square(model, applied[step], rank)

    for how in ({"foreach": True}, {"fused": True}):
        expected = plain(mlp, only_applied, lambda model, how=how: adamw(model, **how), len(applied))
        for policy in POLICIES:
            model, optimizer = dear.distribute(made := mlp(), adamw(made, **how), fusion="layer", policy=policy)
            scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
            scales = []
            for step in range(6):
                overflow = step not in applied and RANK == step % WORLD
                scaler.scale(square(model, step, RANK) * (math.inf if overflow else 1)).backward()
                scaler.step(optimizer)
                scaler.update()
                scales.append(scaler.get_scale())
            assert scales == [1024.0, 512.0, 512.0, 1024.0, 512.0, 512.0], scales
            same(model, expected)
            model.close()


@behaviour(
    "test_grad_scaling_clipping_separate_unscale (torch.amp)",
    "unscale_(), then clipping, then the scaler's step",
    "optimizer.clip_grad_norm_()",
)
def unscale_and_clip() -> None:
    def clip(optimizer, parameters):
        return torch.nn.utils.clip_grad_norm_(parameters, 0.01)

    theirs = []
    expected = plain(mlp, optimizer=clipping(clip, theirs))
    model, optimizer = dear.distribute(made := mlp(), clipping(lambda *_: None, [])(made), fusion="layer")
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    norms = []
    for step in range(4):
        scaler.scale(square(model, step, RANK)).backward()
        scaler.unscale_(optimizer)
        norms.append(optimizer.clip_grad_norm_(0.01))
        scaler.step(optimizer)
        scaler.update()
    same(model, expected, 1e-6)
    torch.testing.assert_close(torch.stack(norms).float(), torch.stack(theirs))


@behaviour("test_ddp_native_mixed_precision_*, test_autocast", "autocast to bfloat16")
def autocast() -> None:
    def loss(model, step, rank):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(batch(step, rank)).float().square().mean()

    same(together(mlp, loss), plain(mlp, loss))


def narrow() -> nn.Module:
    return mlp().bfloat16()


def narrow_loss(model, step, rank):
    return model(batch(step, rank).bfloat16()).square().mean()


@behaviour(
    "test_ddp_mixed_precision_*",
    "parameters in bfloat16, updated in fp32 (master parameters)",
    "fp32_masters=True",
)
def masters() -> None:
    def chosen(parameters):
        return torch.optim.AdamW(parameters, 1e-4)

    reference = narrow()
    wide = [parameter.detach().float() for parameter in reference.parameters()]
    alone = chosen(wide)
    for step in range(6):
        sums = [torch.zeros_like(copy) for copy in wide]
        for rank in range(WORLD):
            reference.zero_grad()
            narrow_loss(reference, step, rank).backward()
            for total, parameter in zip(sums, reference.parameters()):
                total += parameter.grad
        for copy, total in zip(wide, sums):
            copy.grad = (total / WORLD).bfloat16().float()
        alone.step()
        with torch.no_grad():
            for parameter, copy in zip(reference.parameters(), wide):
                parameter.copy_(copy)

    model, optimizer = dear.distribute(made := narrow(), chosen(made.parameters()), fusion="layer", fp32_masters=True)
    for step in range(6):
        if step in (2, 4):  # from a checkpoint: into what trains, and into what begins
            saved = model.state_dict(), optimizer.state_dict()
            if step == 4:
                made = narrow()
                made.load_state_dict(saved[0])
                model, optimizer = dear.distribute(made, chosen(made.parameters()), fusion="all", fp32_masters=True)
            optimizer.load_state_dict(saved[1])
        narrow_loss(model, step, RANK).backward()
        optimizer.step()
    same(model, reference)
    for state, copy in zip(optimizer.state_dict()["state"].values(), wide):
        assert torch.equal(state["master_parameter"], copy)
        assert state["exp_avg"].dtype == torch.float32
    model.close()
    narrow_loss(made, 6, RANK).backward()
    optimizer.step()  # of plain PyTorch
    assert all(state["exp_avg"].dtype == torch.bfloat16 for state in optimizer.state.values())
