"""DiLoCo of torchft 0.2 beside dear.DiLoCo: two replicas in fp64, their parameters after the same steps.

    python -m venv /tmp/beside && /tmp/beside/bin/pip install torchft==0.2.0     # torchft is no requirement of DeAR
    PYTHONPATH=build/release/python build/release/dear launch -n 2 -- /tmp/beside/bin/python bench/rounds_torchft.py

torchft runs as it is, with a lighthouse, a manager a replica and Gloo. It counts a fragment's turns from where the exchange is
applied, and DeAR, as the paper, from where it is sent: so torchft's hooks begin `delay` steps later here, which makes both the
same. Fails where parameters differ by more than 1e-12, in any case.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo
from torchft.manager import Manager
from torchft.process_group import ProcessGroupGloo

import dear

STEPS, EVERY = 40, 8


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)).double()


def outer(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)


def step(model: Any, optimizer: torch.optim.Optimizer, number: int, replica: int) -> float:
    generator = torch.Generator().manual_seed(100 * number + replica)
    x = torch.randn(8, 12, dtype=torch.float64, generator=generator)
    loss = (model(x) - x[:, :4].sin()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def by_dear(group: dear.Group, rounds: dear.DiLoCo) -> tuple[list[Tensor], float, list[list[str]]]:
    module = net()
    model, optimizer = dear.distribute(
        module, torch.optim.AdamW(module.parameters(), lr=0.01), process_group=group, rounds=rounds
    )
    for number in range(STEPS):
        loss = step(model, optimizer, number, group.rank)
    result = [one.detach().clone() for one in module.parameters()], loss, model.overlap_report()["rounds"]["fragments"]
    model.close()
    return result


def by_torchft(
    group: dear.Group, rounds: dear.DiLoCo, names: list[list[str]], lighthouse: str
) -> tuple[list[Tensor], float]:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=30)),
        load_state_dict=None,
        state_dict=None,
        min_replica_size=2,
        use_async_quorum=False,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=lighthouse,
        replica_id=f"replica{group.rank}_",
        init_sync=False,
        hostname="127.0.0.1",
    )
    module = net()
    parameters = dict(module.named_parameters())
    fragments: list[nn.Module] = [nn.ParameterList([parameters[name] for name in some]) for some in names]
    inner = torch.optim.AdamW(module.parameters(), lr=0.01)
    diloco = DiLoCo(
        manager,
        fragments,
        inner,
        [outer(list(one.parameters())) for one in fragments],
        sync_every=rounds.every,
        fragment_sync_delay=rounds.delay,
        fragment_update_alpha=rounds.mixing,
    )
    for number in range(rounds.delay):
        step(module, inner, number, group.rank)
    with diloco:
        for number in range(rounds.delay, STEPS):
            loss = step(module, inner, number, group.rank)
    result = [one.detach().clone() for one in module.parameters()], loss
    manager.shutdown()
    return result


def main() -> None:
    torch.set_num_threads(1)
    logging.disable(logging.INFO)
    group = dear.init(timeout=60)
    lighthouse = (
        LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=10000) if group.rank == 0 else None
    )
    address = dear._C.gather_bytes(group, lighthouse.address().encode() if lighthouse else b"")[0].decode()
    worst = 0.0
    for fragments, delay, mixing in itertools.product((1, 2), (0, 2), (0.0, 0.5)):
        rounds = dear.DiLoCo(every=EVERY, outer=outer, fragments=fragments, delay=delay, mixing=mixing)
        ours, loss, names = by_dear(group, rounds)
        theirs, their_loss = by_torchft(group, rounds, names, address)
        difference = max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True))
        worst = max(worst, difference)
        if group.rank == 0:
            print(
                f"{fragments} fragments, delay {delay}, mixing {mixing}: loss {loss:.12f} and {their_loss:.12f}, parameters differ "
                f"by {difference:.1e} after {STEPS} steps",
                flush=True,
            )
    everyone = max(float(one) for one in dear._C.gather_bytes(group, repr(worst).encode()))
    if lighthouse is not None:
        lighthouse.shutdown()
    sys.stdout.flush()
    os._exit(0 if everyone <= 1e-12 else 1)


if __name__ == "__main__":
    main()
