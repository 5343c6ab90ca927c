"""The program of each rank of bench/faults: a small training in which one rank fails as its run says.

It prints lines that faults.py reads: when the fault was, the error of each survivor, and digests of the parameters of each step.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import datetime
import json
import os
import resource
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any, Optional

STEPS = 12  # of a training that nothing ends
LIVES = 100.0  # seconds of what outlives its rank

# By kind: the signal that the rank sends itself.
SIGNALS = {
    "kill": signal.SIGKILL,
    "abort": signal.SIGABRT,
    "segv": signal.SIGSEGV,
    "stop": signal.SIGSTOP,
}


def import_all(ddp: bool) -> None:
    """Whatever a rank imports, and neither a thread nor an operator."""
    import torch
    import torch.distributed
    import torch.nn.parallel

    import dear

    if ddp:
        import torch._dynamo  # as DistributedDataParallel does
    # So may an optimiser.
    torch.optim.SGD([torch.nn.Parameter(torch.empty(1))], lr=0.1)
    assert dear.__file__
    assert len(os.listdir("/proc/self/task")) == 1, "a fork() leaves threads behind"


def say(line: str) -> None:
    """One write, also of a process that another one forked, and that ends without Python's end."""
    with contextlib.suppress(OSError):
        os.write(1, f"{line}\n".encode())


def pause(whom: int) -> None:
    os.kill(whom, signal.SIGSTOP)
    time.sleep(1.0)
    os.kill(whom, signal.SIGCONT)


class Returned(Exception):
    """The program returns from within a forward pass."""


class Rank:
    def __init__(self, run: dict[str, Any]) -> None:
        self.run = run
        self.rank = int(os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
        self.kind: str = run["kind"]
        self.fails = self.rank == run["rank"]
        self.digests: list[str] = []
        self.kept: Any = None  # dear.Checkpoints

    def here(self, step: int, point: str) -> bool:
        """Fails if this is where; True where the program is to return."""
        if not self.fails or (step, point) != (self.run["step"], self.run["point"]):
            return False
        return self.fail()

    def fail(self) -> bool:
        if self.run["thread"]:
            threading.Thread(target=time.sleep, args=(LIVES,)).start()
        if self.run["child"]:
            self.fork_one_that_lives()
        say(f"FAULT-AT {time.monotonic()}")
        if self.kind == "raise":
            raise ValueError("poison")
        if self.kind == "exit":
            sys.exit(3)
        if self.kind == "_exit":
            os._exit(3)
        if self.kind in SIGNALS:
            os.kill(os.getpid(), SIGNALS[self.kind])
        if self.kind == "slow":
            time.sleep(LIVES)
        if self.kind == "closed":
            os.closerange(3, 65536)
        if self.kind == "memory":
            used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
            bytearray(1 << 30)
        if self.kind == "pause":
            rank = os.getpid()
            self.in_a_child(lambda: pause(rank))
        if self.kind == "fork" and os.fork() == 0:
            sys.exit(0)
        return self.kind == "return"

    def in_a_child(self, act: Callable[[], None]) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                act()
            finally:
                os._exit(0)
        return pid

    def fork_one_that_lives(self) -> None:
        pid = self.in_a_child(lambda: time.sleep(LIVES))
        open(os.path.join(os.environ["DEAR_FAULT_FOLDER"], f"child-{pid}"), "w").close()

    def fail_during(self, point: str, step: int) -> None:
        """The rank gets its signal some time from now, while it goes on."""
        if not self.fails or (step, point) != (self.run["step"], self.run["point"]):
            return
        rank = os.getpid()
        folder = os.environ["DEAR_FAULT_FOLDER"]

        def end() -> None:
            time.sleep(self.run["delay"])
            if self.run["child"]:
                open(os.path.join(folder, f"child-{os.getpid()}"), "w").close()
            say(f"FAULT-AT {time.monotonic()}")
            os.kill(rank, SIGNALS[self.kind])
            if self.run["child"]:
                time.sleep(LIVES)

        self.in_a_child(end)

    # ---- the training

    def note(self, layer: Any) -> None:
        """The parameters that a forward pass has computed with: one digest a layer, in the order of the passes."""
        digest = 0
        for one in layer.parameters():
            digest = zlib.crc32(one.detach().numpy().tobytes(), digest)
        self.digests.append(f"{digest:08x}")

    def train(self) -> None:
        import torch
        from torch import nn

        ours = self

        class Layer(nn.Linear):
            step = 0
            place = 0

            def forward(self, batch: torch.Tensor) -> Any:
                if self.place == 1 and ours.here(self.step, "forward"):
                    raise Returned
                result = super().forward(batch)
                ours.note(self)
                return result

        torch.manual_seed(1)
        net = nn.Sequential(Layer(64, 64), Layer(64, 64), Layer(64, 8))
        layers: Any = net
        for place, layer in enumerate(layers):
            layer.place = place
        self.here(0, "before")
        if self.fails and self.run["point"] == "init":
            time.sleep(0.2)  # the others are there
        self.fail_during("init", 0)
        if self.fails and self.kind == "slow save":
            os.environ["DEAR_FAULT_STALL"] = str(int(4 * self.run["timeout"]))
        model, step_of, saves = self.distributed(net)
        for step in range(STEPS):
            for layer in layers:
                layer.step = step
            try:
                loss = model(torch.full((4, 64), 0.1 * (self.rank + 1) + 0.01 * step)).square().mean()
            except Returned:
                return
            step_of.zero_grad()
            loss.backward()
            if self.here(step, "between"):
                return
            step_of.step()
            if self.here(step, "after"):
                return
            if saves is not None and step == self.run["step"]:
                saves(step)
        if self.kept:
            self.kept.wait()

    def distributed(self, net: Any) -> tuple[Any, Any, Optional[Callable[[int], None]]]:
        """The model and its optimiser on all ranks, and what saves a step."""
        import torch
        from torch import nn

        backend, timeout = self.run["backend"], self.run["timeout"]
        optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
        if backend in ("ddp", "cpu:dear"):
            if backend == "cpu:dear":
                import dear  # registers its backend
            name = "gloo" if backend == "ddp" else backend
            torch.distributed.init_process_group(name, timeout=datetime.timedelta(seconds=timeout))
            if self.here(0, "construct"):
                sys.exit(0)
            return nn.parallel.DistributedDataParallel(net), optimizer, None
        import dear

        group = dear.init(backend=backend, timeout=timeout)
        if self.here(0, "construct"):
            sys.exit(0)
        model, optimizer = dear.distribute(
            net, optimizer, policy=self.run["policy"], fusion="layer", process_group=group, timeout=timeout
        )
        return model, optimizer, self.saver(model) if self.run["save"] else None

    def saver(self, model: Any) -> Callable[[int], None]:
        import dear

        ours, how, folder = self, self.run["save"], os.path.join(os.environ["DEAR_FAULT_FOLDER"], "saves")
        kept = self.kept = how != "file" and dear.Checkpoints(
            folder, model, asynchronous=how == "behind", sharded=how == "shards"
        )

        class Poison:
            """Rank 0 asks it for its state in the middle of a save."""

            def state_dict(self) -> dict[str, Any]:
                if ours.run["rank"] == 0 and ours.run["delay"] == 0:
                    ours.here(ours.run["step"], "save")
                return {}

        def save(step: int) -> None:
            if self.run["delay"] > 0:
                self.fail_during("save", step)
            extra = {"poison": Poison()}
            if kept:
                kept._extra = extra
                kept.save(step)
            else:
                os.makedirs(folder, exist_ok=True)
                dear.save(os.path.join(folder, "saved.pt"), model, step, extra=extra)

        return save


def main(run: dict[str, Any]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    one = Rank(run)
    if one.fails and one.kind not in ("", "pause", "fork", "slow save"):
        return as_a_program(one)
    code = 0
    try:
        one.train()
    except Exception as error:
        text = " ".join(str(error).split())
        say(f"ERROR-OF {one.rank} {time.monotonic()} {type(error).__name__}: {text}")
        code = 1
    say(f"DIGESTS-OF {one.rank} {' '.join(one.digests)}")
    if code == 0:
        say(f"DONE {one.rank}")
    end(one, code)


def as_a_program(one: Rank) -> None:
    """Nothing catches what ends the training. Python destroys its modules only where the run asks for that."""
    if one.run["destroyed"] or one.run["launcher"] != "none":
        return one.train()
    code = 0
    try:
        one.train()
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        code = 1
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    ctypes.CDLL(None).exit(code)


def end(one: Rank, code: int) -> None:
    """As Python ends, but nothing is destroyed, unless the run asks for that."""
    if one.run["destroyed"] or one.run["launcher"] != "none":
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    os._exit(code)


def become_reaper() -> None:
    """Whatever a rank leaves behind becomes a child of this process."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


if __name__ == "__main__":
    main(json.loads(os.environ["DEAR_FAULT"]))
