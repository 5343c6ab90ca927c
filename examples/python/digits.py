"""Trains a multi-layer perceptron on the handwritten digits of scikit-learn.

  python digits.py
  torchrun --nproc-per-node 2 digits.py
  dear launch -n 2 -- python digits.py
  mpirun --bind-to none -n 2 python digits.py

All ranks together take `--batch` samples in a step, so the losses do not depend on the number of ranks.
Needs scikit-learn, which holds the 1797 images of 8 x 8 pixels: nothing is downloaded.
"""

import argparse
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import dear

TRAIN = 1536  # samples; the others tell how good the model is


def read_digits() -> tuple[TensorDataset, TensorDataset]:
    """The samples to train with and those to test with: fp32 pixels from 0 to 1 in rows of 64, and classes from 0 to 9."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        sys.exit("digits.py needs scikit-learn: pip install scikit-learn")
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], labels[order]
    return TensorDataset(images[:TRAIN], labels[:TRAIN]), TensorDataset(images[TRAIN:], labels[TRAIN:])


def make_model(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


@torch.no_grad()
def evaluate(model: nn.Module, samples: TensorDataset) -> tuple[float, float]:
    """Mean loss, and the part of the samples whose class is found."""
    images, labels = samples.tensors
    scores = model(images)
    return nn.functional.cross_entropy(scores, labels).item(), (scores.argmax(1) == labels).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=64, help="samples of all ranks in a step")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--report", type=int, default=24, help="steps from one report to the next")
    options = parser.parse_args()

    torch.manual_seed(1)
    train, test = read_digits()
    model = make_model(options.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model, optimizer = dear.distribute(model, optimizer)
    if options.batch % model.world_size:
        sys.exit(f"digits.py: rank {model.rank}: --batch {options.batch} is not divisible by {model.world_size} ranks")

    sampler = DistributedSampler(train, num_replicas=model.world_size, rank=model.rank)
    loader = DataLoader(train, batch_size=options.batch // model.world_size, sampler=sampler, drop_last=True)
    step = 0
    while step < options.steps:
        sampler.set_epoch(step)
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            step += 1
            if step % options.report == 0 or step == options.steps:
                loss, accuracy = evaluate(model, test)
                if model.rank == 0:
                    print(f"step {step}: loss {loss:.5f}, accuracy {accuracy:.3f}", flush=True)
            if step == options.steps:
                break
    if model.rank == 0:
        print(f"{model.world_size} ranks, backend {model.backend}")


if __name__ == "__main__":
    main()
