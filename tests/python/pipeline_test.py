"""dear.pipeline() on two and four ranks, beside one process with plain autograd."""

from __future__ import annotations

import copy
import datetime
import faulthandler
import multiprocessing
import os
import re
import signal
import socket
import sys
import unittest
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "pipeline"))
from nets import Case, Drawn, alone, cross_entropy, drawn_plan, groups, ids, sgd
from refusals import Failures as Failures
from refusals import Refusals as Refusals
from replicas import Replicas as Replicas
from schedules import Schedules as Schedules
from states import Evaluation as Evaluation
from states import States as States
from training import Compression as Compression
from training import Training as Training

import dear
from dear import _pipeline_run

RANKS = 4
warnings.filterwarnings("ignore", category=UserWarning)


class Gradients(Case):
    def test_of_drawn_models_and_plans(self) -> None:
        """Branches, skips, several consumers, several outputs, masks and ties, cut anywhere, on ranks in any order."""
        schedules = ("gpipe", "zb-h1", "1f1b", "interleaved", "zb-h1", "1f1b")
        for seed in range(12):
            schedule = schedules[seed % 6]
            group, ranks = ((groups.pair, 2), (groups.all, RANKS))[seed // 4 % 2]
            micro_batches = 4 if schedule == "interleaved" else (1, 8, 4)[seed % 3]
            with self.subTest(seed=seed, schedule=schedule, ranks=ranks, micro_batches=micro_batches):
                self.check(Drawn(seed), seed, schedule, group, ranks, micro_batches)

    def check(self, model: Drawn, seed: int, schedule: str, group: Any, ranks: int, micro_batches: int) -> None:
        x, y = ids(seed)
        alike: dict[str, Any] = {"sample": x, "process_group": group}
        made = copy.deepcopy(model)
        stages = 2 * ranks if schedule == "interleaved" else ranks
        pipe, _ = dear.pipeline(made, sgd(made), micro_batches=micro_batches, schedule=schedule, stages=stages, **alike)
        if schedule != "interleaved":
            made = copy.deepcopy(model)
            plan = drawn_plan(pipe.plan, seed, ranks, schedule)
            pipe, _ = dear.pipeline(made, sgd(made), plan=plan, **alike)
        for step in range(2):  # whose gradients add up
            x, y = ids(100 + step)
            expected = alone(model, x, y, cross_entropy, micro_batches)
            found = pipe.step(x, y, loss=cross_entropy)
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
        self.assertAsAlone(pipe, model)

    def test_in_fp32(self) -> None:
        model = Drawn(3, dtype=torch.float32)
        x, y = ids(3)
        made = copy.deepcopy(model)
        pipe, _ = dear.pipeline(made, sgd(made), sample=x, micro_batches=4)
        alone(model, x, y, cross_entropy, 4)
        pipe.step(x, y, loss=cross_entropy)
        self.assertAsAlone(pipe, model, 1e-6)


def left_by_rank_2() -> int:
    """Returns 0 where a step in which rank 2 dies, in a backward pass, says what this rank waited for."""
    model = Drawn(1)
    x, y = ids(1)
    pipe, _ = dear.pipeline(model, sgd(model), sample=x, micro_batches=4)
    backward = _pipeline_run.Run._backward

    def dies(run: Any, stage: Any, micro_batch: int) -> None:
        if dist.get_rank() == 2 and micro_batch == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        backward(run, stage, micro_batch)

    with mock.patch.object(_pipeline_run.Run, "_backward", dies):
        try:
            for _ in range(2):  # who waits for nothing more in a step notices in the next
                pipe.step(x, y, loss=cross_entropy)
        except dear.TransportError as error:
            waits = "operator '.*' of micro-batch [0-3].* on rank [0-3]"
            ends = "waited for no operator, but for the .*rank 2 (died|failed|ended)|the connection to rank .*2.* ended"
            if re.search(f"{waits}|{ends}", str(error)):
                os._exit(0)
            print(error, file=sys.stderr)
    os._exit(1)


def run_ranks(program: Callable[[], int]) -> list[int]:
    """Returns how each rank ended. Ranks are forks of this process, which has imported all that they need."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=rank_of, args=(program, rank)) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    return [process.exitcode or 0 for process in ranks]


def rank_of(program: Callable[[], int], rank: int) -> None:
    os.environ["RANK"] = str(rank)
    faulthandler.dump_traceback_later(400, exit=True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    sys.exit(program())


def cases() -> int:
    pairs = [dist.new_group([first, first + 1]) for first in (0, 2)]
    groups.pair, groups.all = pairs[dist.get_rank() // 2], None
    result = unittest.main(exit=False, argv=sys.argv, failfast=True, verbosity=0).result
    if not result.wasSuccessful():
        os._exit(1)  # the others may be in a collective
    dist.destroy_process_group()
    return 0


def main() -> int:
    model = nn.Linear(1, 1)
    dear.pipeline(model, sgd(model), sample=torch.ones(2, 1), micro_batches=1)  # imports once, for all ranks
    if any(run_ranks(cases)):
        return 1
    ends = run_ranks(left_by_rank_2)
    if ends != [0, 0, -signal.SIGKILL, 0]:
        print(
            f"ranks ended with {ends}, and rank 2 was killed: the others must say what they waited for", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
