"""A training that a scheduler may stop at any time and start again: it goes on where it was, to the bit.

  srun --nodes 2 --ntasks-per-node 1 python train.py --folder run1
  mpiexec -n 2 python train.py --folder run1
  torchrun --nproc-per-node 2 train.py --folder run1

SIGTERM makes it save and end with code 75 on every rank; it ends with code 0 when all steps are done. A scheduler that can tell
the two apart starts it again after the first: train.sbatch, kubernetes/indexed_job.yaml.
All ranks must see --folder. Batches are made of the step and the rank, so that they are the same after a stop.
"""

import argparse
import os
import sys
import time

import torch
from torch import nn

import dear

STOPPED = 75  # EX_TEMPFAIL of sysexits.h: try again later


def make_model(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(32, width), nn.GELU(), nn.Dropout(0.1), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 8)
    )


def make_batch(step: int, rank: int, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples whose class is that of the largest of their first eight numbers."""
    generator = torch.Generator().manual_seed(1_000_003 * step + rank)
    inputs = torch.randn(samples, 32, generator=generator)
    return inputs, inputs[:, :8].argmax(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="run1", help="for checkpoints; a training that lies there goes on")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--every", type=int, default=50, help="steps from one checkpoint to the next")
    parser.add_argument("--batch", type=int, default=32, help="samples of a rank in a step")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument(
        "--pause", type=float, default=0, help="seconds that a step takes longer: leaves time to stop it"
    )
    options = parser.parse_args()

    torch.manual_seed(1)
    model = make_model(options.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=options.steps)
    model, optimizer = dear.distribute(model, optimizer)
    torch.manual_seed(2 + model.rank)  # for dropout: the generator of each rank is saved, too
    checkpoints = dear.Checkpoints(options.folder, model, extra={"scheduler": scheduler})
    stop = dear.StopOnSignal(model)

    def say(text: str) -> None:
        if model.rank == 0:
            print(text, flush=True)

    step = (checkpoints.resume() or {"step": 0})["step"]
    say(f"{model.world_size} ranks, backend {model.backend}, begins at step {step}")
    while step < options.steps and not stop.requested():
        inputs, classes = make_batch(step, model.rank, options.batch)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), classes)
        loss.backward()
        optimizer.step()
        scheduler.step()
        step += 1
        if options.pause:
            time.sleep(options.pause)
        if step % options.every == 0 and step < options.steps:
            checkpoints.save({"step": step})
            say(f"step {step}: loss of rank 0 {loss.item():.6f}, saved")
    checkpoints.save({"step": step})
    say(f"saved step {step} of {options.steps} in {os.path.abspath(options.folder)}")
    if step < options.steps:
        say("stopped by SIGTERM")
        sys.exit(STOPPED)


if __name__ == "__main__":
    main()
