"""A process that trains gets Ctrl-C in a wait, forks, has its training ended by the garbage collector, and its parameters spoiled.

interruptions_test.py DEAR

Under `DEAR launch` this file is the program of each rank.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref

import torch
from torch import nn

import dear


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int) -> None:
    for _ in range(count):
        model(torch.ones(2, 64)).square().mean().backward()
        optimizer.step()


def interrupted() -> None:
    """Rank 0 waits for rank 1, which sleeps, and gets Ctrl-C meanwhile."""
    net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    model, optimizer = dear.distribute(net, torch.optim.SGD(net.parameters(), lr=0.01), fusion="layer", timeout=30)
    steps(model, optimizer, 3)
    if dear.own(model).rank == 1:
        time.sleep(3)
        os._exit(0)
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    begin = time.monotonic()
    try:
        steps(model, optimizer, 3)
        model.synchronize()
    except KeyboardInterrupt:
        seconds = time.monotonic() - begin
        assert seconds < 2, f"Ctrl-C ended the wait after {seconds:.1f} s"
        try:
            model.state_dict()
        except dear.TransportError as error:
            assert "KeyboardInterrupt" in str(error), error
        else:
            raise AssertionError("parameters that may not be whole were saved")
        return
    raise AssertionError("Ctrl-C did not end the wait")


def forked() -> None:
    """A child that was forked computes, ends as programs do, and leaves the training to its parent."""
    net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    model, optimizer = dear.distribute(net, torch.optim.SGD(net.parameters(), lr=0.01), fusion="layer", timeout=30)
    steps(model, optimizer, 3)
    model.synchronize()
    child = os.fork()
    if child == 0:
        assert torch.isfinite(net(torch.ones(1, 64))).all()
        try:
            optimizer.step()
        except dear.ConfigError:
            sys.exit(7)
        sys.exit(1)
    deadline = time.monotonic() + 10
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            raise AssertionError("the child hangs")
        time.sleep(0.02)
    assert os.waitstatus_to_exitcode(ended[1]) == 7, ended
    steps(model, optimizer, 2)
    model.close()


def collected() -> None:
    """The garbage collector ends the training of rank 0 within a step, while rank 1 has its own and waits for a word of rank 0."""
    net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    model, optimizer = dear.distribute(net, torch.optim.SGD(net.parameters(), lr=0.01), fusion="layer", timeout=300)
    steps(model, optimizer, 2)
    model(torch.ones(2, 64)).square().mean().backward()
    rank, ended = dear.own(model).rank, weakref.ref(model)
    if rank == 0:
        del model, optimizer, net
        gc.collect()
        assert ended() is None
    with open(sys.argv[2], "wb" if rank == 0 else "rb", buffering=0) as word:  # a pipe, open when both have opened it
        assert word.write(b"x") == 1 if rank == 0 else word.read() == b"x"


def spoiled() -> None:
    """Rank 1 changes a bit of a parameter; every rank learns which, and whose it is not the same as."""
    net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    sgd = torch.optim.SGD(net.parameters(), lr=0.01)
    model, optimizer = dear.distribute(net, sgd, policy="wfbp", fusion="layer", verify=2, timeout=30)
    steps(model, optimizer, 4)
    if dear.own(model).rank == 1:
        with torch.no_grad():
            net[1].weight.view(torch.int32)[3, 5] ^= 1
    try:
        steps(model, optimizer, 3)
    except dear.MismatchError as error:
        assert "after step 6 the parameter '1.weight'" in str(error), error
    else:
        raise AssertionError("nobody saw that the ranks' parameters differ")


def main() -> int:
    if "RANK" in os.environ:
        torch.set_num_threads(1)
        {"interrupted": interrupted, "forked": forked, "collected": collected, "spoiled": spoiled}[sys.argv[1]]()
        return 0
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        pipe = os.path.join(folder, "word")
        os.mkfifo(pipe)
        for case in ("forked", "interrupted", "collected", "spoiled"):
            program = [sys.argv[1], "launch", "-n", "2", sys.executable, "-B", __file__, case, pipe]
            status = subprocess.run(program, env=environment, check=False, timeout=60).returncode
            if status != 0:
                print(f"{case}: exit code {status}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
