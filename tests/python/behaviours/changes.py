"""Models that change while they train: weights written in place, parameters frozen and added, layers replaced."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import dear

from .registry import RANK, WORLD, batch, behaviour, mlp, refuses, same, sgd, square, together


def adamw(model):
    return torch.optim.AdamW(model.parameters(), 0.05, weight_decay=0.1)


def both(change, make=mlp, optimizer=adamw, steps=6, **options):
    """Trains with DataParallel and plainly; `change(model, optimizer, step)` comes before each step."""

    def plainly():
        made = make()
        chosen = optimizer(made)
        for step in range(steps):
            change(made, chosen, step)
            totals = {}
            for rank in range(WORLD):
                made.zero_grad()
                square(made, step, rank).backward()
                for parameter in made.parameters():
                    if parameter.grad is not None:
                        before = totals.get(parameter)
                        totals[parameter] = parameter.grad.clone() if before is None else before + parameter.grad
            made.zero_grad()
            for parameter, total in totals.items():
                parameter.grad = total / WORLD
            chosen.step()
        return made, chosen

    model = make()
    parallel, chosen = dear.distribute(model, optimizer(model), **{"fusion": "layer", **options})
    for step in range(steps):
        change(parallel, chosen, step)
        square(parallel, step, RANK).backward()
        chosen.step()
    expected, theirs = plainly()
    same(parallel, expected)
    return parallel, chosen, expected, theirs


def policies():
    return dear.training_policies()


@behaviour(
    "test_averaged_model_* (torch.optim.swa_utils)",
    "an average of the weights (AveragedModel), updated right after each step",
)
def averaged_model() -> None:
    for policy in policies():
        averages = []

        def average(model, optimizer, step):
            if step == 0:
                averages.append(AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8)))
            else:
                averages[-1].update_parameters(model)

        both(average, policy=policy)[0].close()
        mine, theirs = averages
        assert type(mine.module) is nn.Sequential
        for a, b in zip(mine.parameters(), theirs.parameters()):
            assert torch.equal(a, b)


@behaviour(
    "(users) EMA weights for evaluation",
    "averaged weights swapped in and out for evaluation: copy_(), parameter.data, load_state_dict()",
)
def swapped_weights() -> None:
    def copying(model, own, other):
        for parameter, value in zip(model.parameters(), other):
            parameter.copy_(value)

    def pointing(model, own, other):
        for parameter, value in zip(model.parameters(), other):
            parameter.data = value

    def loading(model, own, other):
        model.load_state_dict(dict(zip(model.state_dict(), other)))

    for policy in policies():
        for swap in (copying, pointing, loading):
            seen: list[torch.Tensor] = []

            def change(model, optimizer, step):
                with torch.no_grad():
                    other = [torch.full_like(p, 0.1) for p in model.parameters()]
                    own = [p.clone() for p in model.parameters()]
                    swap(model, own, other)
                    seen.append(model(batch(0, 7)).clone())
                    swap(model, other, own)

            both(change, policy=policy)[0].close()
            half = len(seen) // 2
            assert all(torch.equal(a, b) for a, b in zip(seen[:half], seen[half:]))


@behaviour("(users) weight clipping of a WGAN's critic, masks, layers that begin anew", "writes in place after step()")
def written_in_place() -> None:
    mask = (torch.arange(256) % 3 > 0).view(16, 16)

    def change(model, optimizer, step):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.clamp_(-0.1, 0.1)
            model[2].weight.data.mul_(mask)
            if step == 3:
                torch.manual_seed(5)
                model[4].reset_parameters()

    for policy in policies():
        both(change, policy=policy)[0].close()


@behaviour(
    "test_new_spectral_norm_*, test_new_weight_norm_* (torch.nn)",
    "spectral and weight norm, as parametrizations and as hooks",
)
def norms() -> None:
    def make():
        model = mlp()
        parametrizations.spectral_norm(model[0])
        parametrizations.weight_norm(model[2])
        torch.nn.utils.spectral_norm(model[4])
        return model

    for policy in ("wfbp", "dear"):
        same(together(make, policy=policy), plain_in_passes(make))


def plain_in_passes(make):
    """As plain(), with buffers that forward writes as one rank has them."""
    model = make()
    chosen = sgd(model)
    for step in range(4):
        totals: dict[nn.Parameter, torch.Tensor] = {}
        before = {name: buffer.clone() for name, buffer in model.named_buffers()}
        for rank in range(WORLD):
            for name, buffer in model.named_buffers():
                buffer.data = before[name].clone()
            model.zero_grad()
            square(model, step, rank).backward()
            for parameter in model.parameters():
                total = totals.get(parameter)
                totals[parameter] = parameter.grad.clone() if total is None else total + parameter.grad
        for parameter, total in totals.items():
            parameter.grad = total / WORLD
        chosen.step()
    return model


@behaviour("test_prune* (torch.nn.utils.prune)", "pruning in the midst of training, and its end")
def pruned() -> None:
    def change(model, optimizer, step):
        if step == 2:
            prune.l1_unstructured(model[2], "weight", 0.5)
        if step == 4:
            prune.remove(model[2], "weight")

    for policy in policies():
        both(change, policy=policy)[0].close()


@behaviour(
    "(users) fine-tuning from the head down",
    "parameters frozen and unfrozen while training; what the optimiser remembers of them is kept",
)
def frozen_and_unfrozen() -> None:
    def change(model, optimizer, step):
        model[0].requires_grad_(step not in (2, 3))
        model[2].requires_grad_(step not in (3, 4))

    for policy in policies():
        parallel, mine, expected, theirs = both(change, policy=policy)
        kept, plainly = mine.state_dict()["state"], theirs.state_dict()["state"]
        assert kept.keys() == plainly.keys()
        for key, state in plainly.items():
            assert all(torch.equal(kept[key][name], value) for name, value in state.items())
        parallel.close()

    model, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer")
    for step in range(3):
        square(model, step, RANK).backward()
        optimizer.step()
    whole = model.statistics()["parameter_bytes"]
    model[0].requires_grad_(False)
    model[2].requires_grad_(False)
    square(model, 3, RANK).backward()
    optimizer.step()
    assert model.statistics()["parameter_bytes"] < whole / 3
    saved = optimizer.state_dict()
    assert len(saved["state"]) == 6
    optimizer.load_state_dict(saved)
    square(model, 4, RANK).backward()
    optimizer.step()
    model.close()
    assert len(optimizer.state) == 6


@behaviour(
    "(users) freezing by a schedule that differs between ranks",
    "ranks that freeze other parameters than rank 0",
    "refused",
)
def frozen_differently() -> None:
    group = torch.distributed.new_group(list(range(WORLD)))  # a failure ends it
    model, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer", process_group=group)
    square(model, 0, RANK).backward()
    optimizer.step()
    model[2 * RANK].requires_grad_(False)

    def step():
        square(model, 1, RANK).backward()
        optimizer.step()

    refuses(dear.MismatchError, step, "rank 1", "0.weight")


@behaviour("test_zero_redundancy_optimizer test_add_param_group", "add_param_group() while training")
def group_added_later() -> None:
    def first(model):
        model[0].requires_grad_(False)
        return torch.optim.AdamW([*model[2].parameters(), *model[4].parameters()], 0.05)

    def change(model, optimizer, step):
        if step == 2:
            model[0].requires_grad_(True)
            optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.01})

    for policy in policies():
        both(change, optimizer=first, policy=policy)[0].close()


class Adapted(nn.Module):
    """A layer and a low-rank adapter beside it, whose values differ between ranks before rebuild()."""

    def __init__(self, base: nn.Linear, seed: int) -> None:
        super().__init__()
        self.base = base
        torch.manual_seed(seed)
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


@behaviour(
    "test_ddp_model_with_new_parameters (none: DDP has to be made anew)",
    "a model that grows, shrinks or gets another head: rebuild()",
    "model.rebuild()",
)
def rebuilt() -> None:
    def head(model, optimizer, step):
        if step == 3:
            torch.manual_seed(RANK if isinstance(model, dear.DataParallel) else 0)
            model[4] = nn.Linear(16, 20)
            optimizer.add_param_group({"params": model[4].parameters(), "lr": 0.01})

    def adapters(model, optimizer, step):
        if step == 2:
            model.requires_grad_(False)
            seed = RANK if isinstance(model, dear.DataParallel) else 0
            for index in (0, 2):
                model[index] = Adapted(model[index], seed)
                optimizer.add_param_group({"params": [p for p in model[index].parameters() if p.requires_grad]})

    def layers(model, optimizer, step):
        if step == 2:
            torch.manual_seed(RANK if isinstance(model, dear.DataParallel) else 0)
            model.append(nn.Linear(3, 5))
            optimizer.add_param_group({"params": model[5].parameters()})
        if step == 4:
            del model[5]

    for grow in (head, adapters, layers):

        def change(model, optimizer, step, grow=grow):
            inner = getattr(model, "module", model)
            before = [id(p) for p in inner.parameters()]
            grow(model, optimizer, step)
            if isinstance(model, dear.DataParallel) and before != [id(p) for p in inner.parameters()]:
                model.rebuild()

        for policy in policies():
            both(change, policy=policy)[0].close()


@behaviour(
    "(users) layer.weight = nn.Parameter(...), load_state_dict(assign=True), a layer that the optimiser does not know",
    "a parameter that nobody would train is refused at the next step",
    "refused",
)
def replaced_silently() -> None:
    def weight(model):
        model[0].weight = nn.Parameter(torch.zeros(16, 8))

    def assigned(model):
        model.load_state_dict(mlp().state_dict(), assign=True)

    def layer(model):
        model.append(nn.Linear(3, 3))

    for replace in (weight, assigned, layer):
        model, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer")
        square(model, 0, RANK).backward()
        optimizer.step()
        replace(model)
        square(model, 1, RANK).backward()
        refuses(dear.ConfigError, optimizer.step, "weight", "rebuild()")
        optimizer.zero_grad()
        model.synchronize()


class Cloud(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.places, self.values = nn.Parameter(torch.randn(20, 8)), nn.Parameter(torch.rand(20, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(-torch.cdist(x, self.places), 1) @ self.values


def densify(cloud: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Adds five points, each with a copy's values and no state, as programs of Gaussian splatting do."""
    chosen = cloud.places.detach().norm(dim=1).topk(5).indices
    for group, name in zip(optimizer.param_groups, ("places", "values")):
        old = group["params"][0]
        new = nn.Parameter(torch.cat([old.detach(), old.detach()[chosen]]))
        state = optimizer.state.pop(old)
        for key in ("exp_avg", "exp_avg_sq"):
            state[key] = torch.cat([state[key], torch.zeros_like(state[key][:5])])
        optimizer.state[new] = state
        group["params"][0] = new
        setattr(cloud, name, new)


@behaviour(
    "(users) densification",
    'densification: parameters replaced, their state moved by hand, then rebuild(), with update="program"',
)
def densification() -> None:
    def change(model, optimizer, step):
        if step % 3 == 2:
            densify(getattr(model, "module", model), optimizer)
            if model is not getattr(model, "module", model):
                model.rebuild()

    def optimizer(model):
        return torch.optim.Adam([{"params": [model.places], "lr": 1e-2}, {"params": [model.values], "lr": 1e-3}])

    parallel, *_ = both(change, Cloud, optimizer, steps=9, update="program")
    assert parallel.places.shape == (35, 8)
    parallel.close()
    cloud = Cloud()
    model, used = dear.distribute(cloud, optimizer(cloud))
    for step in range(2):
        square(model, step, RANK).backward()
        used.step()
    refuses(dear.ConfigError, lambda: densify(cloud, used), 'update="program"')
    model.close()
