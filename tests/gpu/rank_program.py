"""One rank of a session of checks. Run by sessions.py:  rank_program.py SESSION_AS_JSON

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who it is. It makes the checks one after another, and writes to the file
descriptor `report` a line of JSON when it is ready and after each of them. The first check that fails ends the process.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any


def prepare(session: dict[str, Any], said: list[str]) -> Any:
    """The device, and torch.distributed on it. `said`: receives what DeAR says of its choice, on the stub device."""
    sys.path[:0] = [os.path.join(session["build"], name) for name in ("python", "python_testing")]
    warnings.filterwarnings("ignore", message=".*Set seed for `stub` device.*")
    import setting  # noqa: F401  finds the modules of bench/rivals
    import torch
    from devices import DEVICES

    torch.set_num_threads(1)
    device = DEVICES[session["device"]]()
    if device.name == "cuda":
        torch.cuda.set_device(0)
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # which would take time and show nothing here
    import dear

    backend = None if device.name == "stub" else device.backend(session["library"])
    dear.init_process_group(backend, say=said.append)
    return device


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    name = "" if isinstance(error, AssertionError) and text else f"{type(error).__name__}: "
    return f"rank {os.environ['RANK']}: {name}{text[:400]}"


def main() -> None:
    session = json.loads(sys.argv[1])
    report = os.fdopen(session["report"], "w")

    def tell(**line: Any) -> None:
        report.write(json.dumps(line) + "\n")
        report.flush()

    def fail(error: BaseException) -> None:
        traceback.print_exc()
        sys.stderr.flush()
        tell(outcome="failed", why=one_line(error))
        os._exit(1)  # the others may be in a collective

    faulthandler.enable()  # the end of a deadline is SIGABRT
    said: list[str] = []
    try:
        device = prepare(session, said)
        import torch.distributed as dist
        from setting import NotHere, Setting
    except Exception as error:
        fail(error)
    tell(outcome="passed")
    for name, check in session["steps"]:
        module, _, function = check.partition(":")
        folder = Path(session["folder"]) / name
        setting = Setting(device, session["library"], session["quick"], folder, said)
        print(f"== {name}", flush=True)
        try:
            if device.name == "stub":
                device.set_delays(seed=dist.get_rank(), largest_seconds=0 if check.startswith("times") else 5e-5)
            figures = getattr(importlib.import_module(f"checks.{module}"), function or "check")(setting)
            device.settle()
        except NotHere as reason:
            tell(outcome="not here", why=str(reason))
        except Exception as error:
            fail(error)
        else:
            tell(outcome="passed", figures=figures)
    device.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
