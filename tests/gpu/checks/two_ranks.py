"""Collectives of the process group by themselves, what DeAR would have chosen, what it says, and a training."""

import contextlib
import io

import torch
import torch.distributed as dist
from dear._backend_choice import choose, place_of_this_rank
from setting import Figures, NotHere, Setting
from torch import nn
from training import Comparisons, adamw, each_step, plain_step

from dear import _streams


def collectives(setting: Setting) -> None:
    device, rank = setting.device, dist.get_rank()
    x = torch.arange(4.0).to(device.name, non_blocking=True) + rank
    try:
        dist.all_reduce(x)
    except Exception as error:
        if "Duplicate GPU" in str(error):
            raise NotHere("NCCL takes one rank a device here") from None
        raise
    waits = device.host_waits()
    shard = torch.empty(2, device=device.name)
    dist.reduce_scatter_tensor(shard, x)
    whole = torch.empty(4, device=device.name)
    dist.all_gather_into_tensor(whole, shard)
    assert device.host_waits() == waits, "the host waited for a collective"
    found = whole.tolist()
    assert found == [2.0 * (2 * i + 1) for i in range(4)], f"collectives of {setting.library} computed {found}"


def as_on_the_cpu(name: str) -> None:
    """Plain PyTorch on the device: the bits of the CPU, or what rounding leaves of them."""
    results = []
    for device in ("cpu", name):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for step in range(3):
            data = torch.sin(torch.arange(12.0) + 10 * step + dist.get_rank()).view(2, 6).to(device)
            model(data).square().mean().backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
        results.append(torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()]))
    torch.testing.assert_close(*results, **({"rtol": 0, "atol": 0} if name == "stub" else {}))


def choice(setting: Setting) -> str:
    place = place_of_this_rank()
    name = setting.device.name
    assert place.accelerator == name and place.library == setting.device.libraries[-1], place
    chosen, _ = choose([place, place])
    if name == "stub":
        assert chosen == "cpu:gloo,stub:stub", chosen
        assert len(setting.said) == (dist.get_rank() == 0), f"rank {dist.get_rank()} said {setting.said}"
    elif len(place.devices) == 1:
        assert chosen == "cpu:dear,cuda:gloo", f"two ranks on one GPU were given {chosen}"
    return chosen


def says(setting: Setting, comparisons: Comparisons) -> None:
    """Once on rank 0, what carries the model."""
    _streams.say.cache_clear()
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        for _ in range(2):
            comparisons.run(lambda job: None)
    name, library = setting.device.name, setting.library
    expected = (
        f"dear: a model on {name}:0 trains over c10d {library}, the backend that the process group has for {name}; what the "
        f"hosts tell each other goes over shm\n"
    )
    assert said.getvalue() == ("" if dist.get_rank() else expected), said.getvalue()


def check(setting: Setting) -> Figures:
    collectives(setting)
    as_on_the_cpu(setting.device.name)
    comparisons = Comparisons(setting)
    chosen = choice(setting)
    says(setting, comparisons)
    comparisons.as_plain(each_step(plain_step), adamw)
    return {**comparisons.figures(), "DeAR would choose": chosen}
