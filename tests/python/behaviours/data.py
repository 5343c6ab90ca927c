"""Ranks with different numbers of batches, and batches of different sizes."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

import dear

from .registry import RANK, WORLD, batch, behaviour, mlp, refuses, same, sgd, square


def batches_of(rank: int, epoch: int = 0) -> int:
    return 2 + 3 * rank if epoch % 2 == 0 else 2 + 3 * (WORLD - 1 - rank)


def one_process(
    optimizer=sgd, weigh=lambda present: 1 / WORLD, epochs: int = 1, loss=square, scheduler=None
) -> nn.Module:
    """Plain PyTorch on the batches that there are, each with the weight that `weigh` gives it."""
    model = mlp()
    chosen = optimizer(model)
    schedule = scheduler(chosen) if scheduler else None
    for epoch in range(epochs):
        for step in range(max(batches_of(rank, epoch) for rank in range(WORLD))):
            present = [rank for rank in range(WORLD) if step < batches_of(rank, epoch)]
            chosen.zero_grad()
            for rank in present:
                (loss(model, step + 50 * epoch, rank) * weigh(present)).backward()
            chosen.step()
            if schedule:
                schedule.step()
    return model


def joined(optimizer=sgd, epochs: int = 1, loss=square, scheduler=None, join=None, **options):
    made = mlp()
    chosen = optimizer(made)
    schedule = scheduler(chosen) if scheduler else None
    model, chosen = dear.distribute(made, chosen, **{"fusion": "layer", **options})
    for epoch in range(epochs):
        with model.join(**(join or {})) as context:
            for step in range(batches_of(RANK, epoch)):
                loss(model, step + 50 * epoch, RANK).backward()
                chosen.step()
                if schedule:
                    schedule.step()
        assert context.shadowed == max(batches_of(rank, epoch) for rank in range(WORLD)) - batches_of(RANK, epoch)
        if schedule:
            for _ in range(context.shadowed):
                schedule.step()
    return model


@behaviour(
    "test_ddp_uneven_inputs, test_ddp_join_model_equivalence",
    "uneven inputs: ranks that have run out of data take part until all have; then all have the same parameters",
)
def join_is_one_process() -> None:
    for policy in dear.training_policies():
        model = joined(epochs=2, policy=policy)
        same(model, one_process(epochs=2), 1e-6)
        model.close()


@behaviour(
    "test_ddp_grad_div_uneven_inputs",
    "uneven inputs: gradients divided by the ranks that there are, or by those that have data",
    "divide_by_initial_world_size, as DDP",
)
def join_divides() -> None:
    model = joined(join={"divide_by_initial_world_size": False})
    same(model, one_process(weigh=lambda present: 1 / len(present)), 1e-6)


@behaviour(
    "test_ddp_uneven_inputs_stop_iteration_sync_bn, test_ddp_uneven_input_exception",
    "uneven inputs as an error, and an exception on one rank",
    "on every rank; throw_on_early_termination",
)
def join_throws() -> None:
    for epoch in range(2):
        refuses(
            dear.MismatchError,
            lambda epoch=epoch: joined(epochs=epoch + 1, join={"throw_on_early_termination": True}),
            f"rank {RANK}",
            "data",
        )
    model, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer")
    with model.join(enable=False), model.join(throw_on_early_termination=True):
        for step in range(2):
            square(model, step, RANK).backward()
            optimizer.step()


@behaviour(
    "test_ddp_uneven_input_join_disable, (users) exceptions in a join",
    "a rank that leaves join() by an exception ends the others, with its text",
    "TransportError",
)
def join_left_by_an_exception() -> None:
    model, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer")
    try:
        with model.join():
            for step in range(2 + 3 * RANK):
                square(model, step, RANK).backward()
                optimizer.step()
                if RANK == WORLD - 1 and step == 3:
                    raise KeyError("no such file")
        raise AssertionError("no error")
    except KeyError:
        assert RANK == WORLD - 1
    except dear.TransportError as error:
        assert RANK < WORLD - 1
        assert f"rank {WORLD - 1}" in str(error), error
        assert "no such file" in str(error), error


@behaviour(
    "(users) schedulers and clipping in a join",
    "what ranks with data do to the optimiser's options and to gradients is done on those without, too",
    "as one process",
)
def join_follows() -> None:
    def adamw(model):
        return torch.optim.AdamW(model.parameters(), 0.02)

    def scheduler(optimizer):
        return LambdaLR(optimizer, lambda step: 1 / (1 + step))

    same(joined(adamw, 2, scheduler=scheduler), one_process(adamw, epochs=2, scheduler=scheduler), 1e-6)

    model, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer")
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    with dear.join(model):
        for step in range(batches_of(RANK)):
            scaler.scale(square(model, step, RANK)).backward()
            scaler.unscale_(optimizer)
            optimizer.clip_grad_norm_(0.05)
            scaler.step(optimizer)
            scaler.update()
            if step == 3:
                model.regroup("all")
                optimizer.state_dict()
                model.synchronize()
    alone = mlp()
    plain = sgd(alone)
    for step in range(batches_of(WORLD - 1)):
        plain.zero_grad()
        for rank in range(WORLD):
            if step < batches_of(rank):
                (square(alone, step, rank) / WORLD).backward()
        torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.05)
        plain.step()
    same(model, alone, 1e-6)


def rows_of(step: int, rank: int) -> int:
    return (step + 2 * rank) % 4


def mean_of_rows(model, step, rank):
    """The mean over some rows; over none, of rank 0, it is NaN."""
    return model(batch(step, rank)[: rows_of(step, rank)]).square().mean()


@behaviour(
    "(users) batches of different sizes, test_ddp_grad_div_uneven_inputs",
    "batches of different sizes, also empty ones: the mean over all samples, not over ranks",
    "model.samples(n)",
)
def samples() -> None:
    for policy in dear.training_policies():
        model, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer", policy=policy)
        alone = mlp()
        plain = sgd(alone)
        for step in range(6):
            model.samples(rows_of(step, RANK))
            mean_of_rows(model, step, RANK).backward()
            optimizer.step()
            inputs = torch.cat([batch(step, rank)[: rows_of(step, rank)] for rank in range(WORLD)])
            plain.zero_grad()
            alone(inputs).square().mean().backward()
            plain.step()
        same(model, alone, 1e-6)
        assert all(math.isfinite(p.sum().item()) for p in model.parameters())
        model.close()
