"""Lightning and the Trainer of Hugging Face by DeAR beside their own DDP, on two hosts with a slow wire between them, in turns.

    bench/hosts up 2 200mbit
    PYTHONPATH=build/release/python .venv/bin/python bench/in_frameworks.py lightning      # as root; 2 hosts, 1 rank each
    PYTHONPATH=build/release/python .venv/bin/python bench/in_frameworks.py huggingface --fusion layer

lightning fits a multi-layer perceptron of --width by 4 layers on random samples with SGD, huggingface a GPT-2 of --width by --layers on random
tokens with AdamW: once by DDP, once by DeAR, and again, --turns times, in the same processes and with the same Gloo. Prints the milliseconds of a
step (the median over steps, of the slower rank), and the ratio. The losses of both must be alike to 1e-6: otherwise the bench fails.
"""

from __future__ import annotations

import argparse
import logging
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

HERE = pathlib.Path(__file__).resolve()
ADDRESS = "10.77.0.1"
MOST_APART = 1e-6  # losses
FIRST_STEPS = 5  # not counted


class Run:
    """What a fit leaves: when each step began, and its loss on this rank."""

    def __init__(self) -> None:
        self.began: list[float] = []
        self.losses: list[float] = []


def in_lightning(chosen: argparse.Namespace) -> dict[str, Callable[[], Run]]:
    import lightning
    import torch
    from dear.lightning import DearStrategy
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    width, batch = chosen.width or 512, chosen.batch or 256

    class Perceptron(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            layers = [one for _ in range(4) for one in (nn.Linear(width, width), nn.ReLU())]
            self.net = nn.Sequential(*layers, nn.Linear(width, 8))
            self.run = Run()

        def training_step(self, batch: Any, index: int) -> Any:
            self.run.began.append(time.perf_counter())
            loss = (self.net(batch[0]) - batch[0][:, :8].sin()).square().mean()
            self.run.losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

    samples = torch.randn(2 * batch * chosen.steps, width, generator=torch.Generator().manual_seed(1))

    def fit(strategy: Any) -> Run:
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=1,
            num_nodes=2,
            strategy=strategy,
            max_epochs=1,
            enable_model_summary=False,
            gradient_clip_val=chosen.clip or None,
            **quiet,
        )
        module = Perceptron()
        trainer.fit(module, DataLoader(TensorDataset(samples), batch_size=batch))
        return module.run

    return {
        "DDP": lambda: fit("ddp"),
        "DeAR": lambda: fit(DearStrategy(policy=chosen.policy, fusion=chosen.fusion)),
    }


def in_huggingface(chosen: argparse.Namespace) -> dict[str, Callable[[], Run]]:
    import torch
    import transformers
    from dear.huggingface import Trainer

    transformers.logging.set_verbosity_error()
    width, batch = chosen.width or 128, chosen.batch or 8
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 512, (2 * batch * chosen.steps, chosen.tokens), generator=generator)
    texts = [{"input_ids": one, "labels": one} for one in tokens]

    def fit(kind: Any, **options: Any) -> Run:
        torch.manual_seed(0)
        still = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        shape = {"n_embd": width, "n_layer": chosen.layers, "n_head": 4, "n_positions": chosen.tokens}
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=512, **shape, **still))
        run = Run()

        class Watched(kind):
            def training_step(self, *args: Any, **kwargs: Any) -> Any:
                run.began.append(time.perf_counter())
                loss = super().training_step(*args, **kwargs)
                run.losses.append(loss.item())
                return loss

        with tempfile.TemporaryDirectory() as folder:
            quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no"}
            told = transformers.TrainingArguments(
                output_dir=folder,
                max_steps=chosen.steps,
                per_device_train_batch_size=batch,
                max_grad_norm=chosen.clip,
                use_cpu=True,
                **quiet,
            )
            trainer = Watched(model=model, args=told, train_dataset=texts, **options)
            trainer.remove_callback(transformers.PrinterCallback)
            trainer.train()
            trainer.accelerator.free_memory()
        return run

    return {
        "DDP": lambda: fit(transformers.Trainer),
        "DeAR": lambda: fit(Trainer, dear_options={"policy": chosen.policy, "fusion": chosen.fusion}),
    }


FRAMEWORKS = {"lightning": ("Lightning", in_lightning), "huggingface": ("Trainer", in_huggingface)}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=FRAMEWORKS)
    parser.add_argument("--width", type=int, help="512 for lightning, 128 for huggingface")
    parser.add_argument("--layers", type=int, default=4, help="of the GPT-2")
    parser.add_argument("--tokens", type=int, default=128, help="of a sample of the GPT-2")
    parser.add_argument("--batch", type=int, help="samples of a rank in a step: 256 for lightning, 8 for huggingface")
    parser.add_argument("--clip", type=float, default=0.0, help="clip gradients by this norm; 0 for no clipping")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--fusion", default="auto")
    parser.add_argument("--policy", default="dear")
    return parser.parse_args()


def on_a_rank(chosen: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    name, sides = FRAMEWORKS[chosen.framework][0], FRAMEWORKS[chosen.framework][1](chosen)

    seconds: dict[str, list[float]] = {side: [] for side in sides}
    furthest = 0.0
    for _ in range(chosen.turns):
        losses = []
        for side, fit in sides.items():
            run = fit()
            steps = [later - begin for begin, later in zip(run.began[FIRST_STEPS:], run.began[FIRST_STEPS + 1 :])]
            slower = torch.tensor(statistics.median(steps))
            dist.all_reduce(slower, dist.ReduceOp.MAX)
            seconds[side].append(slower.item())
            losses.append(run.losses)
        furthest = max(furthest, *(abs(one - other) for one, other in zip(*losses, strict=True)))
    told = torch.tensor(furthest, dtype=torch.float64)
    dist.all_reduce(told, dist.ReduceOp.MAX)
    furthest = told.item()
    if furthest > MOST_APART:
        sys.exit(f"losses differ by {furthest}")
    if dist.get_rank() == 0:
        medians = {side: statistics.median(turns) for side, turns in seconds.items()}
        for side, turns in seconds.items():
            told_turns = ", ".join(f"{1e3 * one:.1f}" for one in turns)
            print(f"{name} by {side:<4}  {1e3 * medians[side]:7.1f} ms a step   ({told_turns})")
        print(
            f"DeAR is {medians['DDP'] / medians['DeAR']:.2f} x as fast; losses differ by at most {furthest:.1e}; "
            f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores"
        )
    dist.barrier()


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
        told |= {"GLOO_SOCKET_IFNAME": "eth0", "ACCELERATE_USE_CPU": "true"}
        command = [str(HERE.parent / "hosts"), "run", str(rank), sys.executable, "-B", str(HERE), *sys.argv[1:]]
        ranks.append(subprocess.Popen(command, env={**os.environ, **told}))
    if any([rank.wait() for rank in ranks]):
        sys.exit("a rank failed")


if __name__ == "__main__":
    main()
