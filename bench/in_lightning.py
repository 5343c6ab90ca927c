"""Lightning by strategy="dear" beside its own DDP, on two hosts with a slow wire between them, in turns.

    bench/hosts up 2 200mbit
    PYTHONPATH=build/release/python .venv/bin/python bench/in_lightning.py      # as root; 2 hosts, 1 rank each

A Trainer fits a multi-layer perceptron of --width by 4 layers on random samples: once by DDP, once by DeAR, and again, --turns times; it
is the same process and the same Gloo. Prints the seconds of a step (the median over steps, of the slower rank), and the ratio. The losses of
both must be alike to 1e-5: otherwise the bench fails.
"""

from __future__ import annotations

import argparse
import logging
import os
import pathlib
import statistics
import subprocess
import sys
import time
import warnings
from typing import Any

HERE = pathlib.Path(__file__).resolve()
ADDRESS = "10.77.0.1"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=256, help="samples of a rank in a step")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--fusion", default="auto")
    parser.add_argument("--policy", default="dear")
    return parser.parse_args()


def on_a_rank(chosen: argparse.Namespace) -> None:
    import lightning
    import torch
    import torch.distributed as dist
    from dear.lightning import DearStrategy
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    width = chosen.width

    class Perceptron(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            layers = [one for _ in range(4) for one in (nn.Linear(width, width), nn.ReLU())]
            self.net = nn.Sequential(*layers, nn.Linear(width, 8))
            self.losses: list[float] = []
            self.began: list[float] = []

        def training_step(self, batch: Any, index: int) -> Any:
            self.began.append(time.perf_counter())
            loss = (self.net(batch[0]) - batch[0][:, :8].sin()).square().mean()
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

    samples = torch.randn(2 * chosen.batch * chosen.steps, width, generator=torch.Generator().manual_seed(1))

    def fit(strategy: Any) -> tuple[float, list[float]]:
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=1,
            num_nodes=2,
            strategy=strategy,
            max_epochs=1,
            enable_model_summary=False,
            **quiet,
        )
        module = Perceptron()
        trainer.fit(module, DataLoader(TensorDataset(samples), batch_size=chosen.batch))
        steps = [later - begin for begin, later in zip(module.began[5:], module.began[6:])]
        seconds = torch.tensor(statistics.median(steps))
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        return seconds.item(), module.losses

    by_ddp, by_dear = [], []
    for _ in range(chosen.turns):
        seconds, losses = fit("ddp")
        by_ddp.append(seconds)
        seconds, others = fit(DearStrategy(policy=chosen.policy, fusion=chosen.fusion))
        by_dear.append(seconds)
        worst = max(abs(one - other) for one, other in zip(losses, others, strict=True))
        if worst > 1e-5:
            sys.exit(f"losses differ by {worst}")
    if dist.get_rank() == 0:
        ddp, dear = statistics.median(by_ddp), statistics.median(by_dear)
        print(f"Lightning by DDP   {1e3 * ddp:7.1f} ms a step   ({', '.join(f'{1e3 * one:.1f}' for one in by_ddp)})")
        print(f"Lightning by DeAR  {1e3 * dear:7.1f} ms a step   ({', '.join(f'{1e3 * one:.1f}' for one in by_dear)})")
        print(f"DeAR is {ddp / dear:.2f} x as fast; losses alike")


def main() -> None:
    chosen = options()
    if "RANK" in os.environ:
        return on_a_rank(chosen)
    ranks = []
    for rank in range(2):
        told = {"TORCHELASTIC_RUN_ID": "bench", "MASTER_ADDR": ADDRESS, "MASTER_PORT": "29511", "OMP_NUM_THREADS": "1"}
        told |= {
            "RANK": str(rank),
            "GROUP_RANK": str(rank),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "1",
        }
        told |= {"GLOO_SOCKET_IFNAME": "eth0"}
        command = [str(HERE.parent / "hosts"), "run", str(rank), sys.executable, "-B", str(HERE), *sys.argv[1:]]
        ranks.append(subprocess.Popen(command, env={**os.environ, **told}))
    if any([rank.wait() for rank in ranks]):
        sys.exit("a rank failed")


if __name__ == "__main__":
    main()
