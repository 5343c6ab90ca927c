"""What launchers_test.py starts as ranks:  launched.py [die | refuse]

Trains a few steps, and prints one line of JSON: who this rank is, what was trained, and how often torchrun has started it
again. With `die`, rank 1 kills itself in the midst of the first start. With `refuse`, sets the environments of
standard input, lines of JSON, one after another, and prints what dear.init() says to each.
"""

import json
import os
import signal
import sys

import torch

import dear


def train(die: bool) -> None:
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = dear.distribute(model, optimizer)
    generator = torch.Generator().manual_seed(1)
    for step in range(6):
        samples = torch.randn(4, 6, generator=generator)[model.rank :: model.world_size]
        optimizer.zero_grad()
        model(samples).square().mean().backward()
        optimizer.step()
        if die and restarts == 0 and model.rank == 1 and step == 2:
            print(json.dumps({"died": restarts}) + "\n", end="", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    trained = [parameter.double().sum().item() for parameter in model.parameters()]
    found = {
        "rank": model.rank,
        "ranks": model.world_size,
        "backend": model.backend,
        "restarts": restarts,
        "trained": trained,
    }
    print(json.dumps(found) + "\n", end="", flush=True)


def refuse() -> None:
    before = dict(os.environ)
    for line in sys.stdin:
        os.environ.clear()
        os.environ.update(before | json.loads(line))
        try:
            found = {"backend": dear.init(timeout=0.5).backend}
        except dear.Error as error:
            found = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(found), flush=True)


if sys.argv[1:] == ["refuse"]:
    refuse()
else:
    train(die=sys.argv[1:] == ["die"])
