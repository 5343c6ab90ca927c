"""Several models, each with an optimiser of its own, in one world."""

from __future__ import annotations

import torch
from torch import nn

import dear

from .registry import RANK, WORLD, batch, behaviour, mlp, refuses, same, sgd


def pair() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(5)
    generator = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 6)).double()
    discriminator = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1)).double()
    return generator, discriminator


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), 0.01, betas=(0.5, 0.9))


def loss_of_discriminator(generator, discriminator, noise, real):
    """With a gradient penalty."""
    fake = generator(noise).detach()
    between = (0.3 * real + 0.7 * fake).requires_grad_()
    slopes = torch.autograd.grad(discriminator(between).sum(), between, create_graph=True)[0]
    return discriminator(fake).mean() - discriminator(real).mean() + 10 * (slopes.norm(dim=1) - 1).square().mean()


def data(step: int, ranks: range) -> tuple[torch.Tensor, torch.Tensor]:
    noise = torch.cat([batch(step, rank).double() for rank in ranks])
    real = torch.cat([batch(step + 100, rank, features=6).double() for rank in ranks])
    return noise, real


def turns(generator, discriminator, for_generator, for_discriminator, ranks) -> None:
    for step in range(4):
        noise, real = data(step, ranks)
        for_discriminator.zero_grad()
        loss_of_discriminator(generator, discriminator, noise, real).backward()
        for_discriminator.step()
        for_generator.zero_grad()
        (-discriminator(generator(noise)).mean()).backward()  # leaves gradients in the discriminator
        for_generator.step()
    for_discriminator.zero_grad()


@behaviour(
    "(users) GANs, test_ddp_multiple_models",
    "a GAN: two models on one group in turns, a gradient penalty, gradients that the next step drops",
)
def gan() -> None:
    plain = pair()
    turns(*plain, *map(adam, plain), range(WORLD))
    group = dear._process_group.group_of(None, 120.0)
    for policy in ("serial", "wfbp", "dear-replicated", "dear"):
        made = pair()
        trained = [dear.distribute(one, adam(one), fusion="layer", policy=policy, process_group=group) for one in made]
        turns(*[model for model, _ in trained], *[optimizer for _, optimizer in trained], range(RANK, RANK + 1))
        for (model, _), reference in zip(trained, plain):
            model.discard_step() if model is trained[1][0] else None
            same(model, reference, 1e-9)
            model.close()


@behaviour(
    "(users) a GAN in one module, test_ddp_multiple_models",
    "parts of one module with an optimiser each, in turns, by dear.distribute_parts(); names of parameters in its errors",
)
def parts_of_one_module() -> None:
    plain = pair()
    turns(*plain, *map(adam, plain), range(WORLD))
    for policy in ("wfbp", "dear"):
        made = nn.ModuleList(pair())
        parts, optimizers = dear.distribute_parts(made, [*map(adam, made)], policy=policy, fusion="layer")
        turns(*made, *optimizers, range(RANK, RANK + 1))
        with parts.no_sync():
            made[1](batch(0, RANK, features=6).double()).sum().backward()
        assert len(optimizers[1].state_dict()["state"]) == 4  # of the last step
        parts.discard_step()
        parts.synchronize()
        same(made, nn.ModuleList(plain), 1e-9)
        parts.close()
    halves = [made[0].parameters(), [*made[1].parameters()][:1]]
    both = [torch.optim.SGD(half, 0.1) for half in halves]
    refuses(dear.ConfigError, lambda: dear.distribute_parts(made, both), "'1.0.bias'", "freeze")
    refuses(dear.ConfigError, lambda: dear.distribute_parts(made, [*both, both[1]]), "'1.0.weight'", "1 and 2")
    refuses(dear.ConfigError, lambda: dear.distribute_parts(made, []), "no optimiser")


@behaviour(
    "(users) an error of one rank that its program catches",
    "abandon() ends the training on one rank; the others get an error that names it and the reason; a new training goes on",
)
def abandoned_by_one_rank() -> None:
    made = mlp()
    model, optimizer = dear.distribute(made, sgd(made), fusion="layer")

    def train() -> None:
        for step in range(8):
            if RANK == 1 and step == 3:
                return model.abandon("its disk is full")
            made_loss = model(batch(step, RANK)).square().mean()
            made_loss.backward()
            optimizer.step()

    if RANK == 1:
        train()
        assert type(optimizer) is torch.optim.SGD and torch.isfinite(made(batch(0, 0))).all()
        refuses(dear.ConfigError, model.synchronize, "closed")
    else:
        refuses(dear.Error, train, "rank 1", "its disk is full")
        model.abandon()
    again = mlp()
    model, optimizer = dear.distribute(again, sgd(again), fusion="layer")
    model(batch(0, RANK)).square().mean().backward()
    optimizer.step()
    model.close()


@behaviour(
    "(users) one layer in two optimisers",
    "a parameter that two optimisers would train",
    "refused, with its name",
)
def one_parameter_in_two() -> None:
    made = mlp()
    model, _ = dear.distribute(made, sgd(made), fusion="layer")
    refuses(dear.ConfigError, lambda: dear.distribute(made[2], sgd(made[2])), "'weight'", "another DataParallel")
    model.close()
    dear.distribute(made[2], sgd(made[2]), fusion="layer")[0].close()
