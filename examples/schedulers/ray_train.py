"""Trains by DeAR within Ray Train, with checkpoints that Ray keeps and workers that it starts again:

  python ray_train.py --workers 2

Needs Ray: pip install 'ray[train]'. TorchTrainer makes torch.distributed's default group, and dear.distribute() takes its ranks from it.
"""

import argparse
import hashlib
import os
import tempfile

import ray.train
import torch
from ray.train.torch import TorchConfig, TorchTrainer
from torch import nn

import dear


def make_batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """32 samples whose class is that of the largest of their first eight numbers."""
    generator = torch.Generator().manual_seed(1_000_003 * step + rank)
    inputs = torch.randn(32, 32, generator=generator)
    return inputs, inputs[:, :8].argmax(1)


def digest(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()[:16]


def train(options: dict) -> None:
    """What each worker runs."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model, optimizer = dear.distribute(model, optimizer)

    step = 0
    if checkpoint := ray.train.get_checkpoint():  # this worker was started again
        with checkpoint.as_directory() as folder:
            step = dear.load(os.path.join(folder, "training.pt"), model)["step"]
    while step < options["steps"]:
        if step == options["fail_at"] and not ray.train.get_checkpoint() and model.rank == 1:
            os._exit(1)
        inputs, classes = make_batch(step, model.rank)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), classes)
        loss.backward()
        optimizer.step()
        step += 1
        if step % options["every"] and step < options["steps"]:
            continue
        metrics = {"step": step, "loss": loss.item(), "parameters": digest(model), "backend": model.backend}
        with tempfile.TemporaryDirectory() as folder:
            dear.save(os.path.join(folder, "training.pt"), model, {"step": step})  # rank 0 writes
            kept = ray.train.Checkpoint.from_directory(folder) if model.rank == 0 else None
            ray.train.report(metrics, checkpoint=kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=50, help="steps from one checkpoint to the next")
    parser.add_argument("--storage", default="ray-results", help="a folder that all hosts see")
    parser.add_argument(
        "--fail-at", type=int, default=-1, help="worker 1 ends itself at this step: Ray starts all again"
    )
    options = parser.parse_args()

    trainer = TorchTrainer(
        train,
        train_loop_config={"steps": options.steps, "every": options.every, "fail_at": options.fail_at},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ray.train.ScalingConfig(num_workers=options.workers),
        run_config=ray.train.RunConfig(
            storage_path=os.path.abspath(options.storage),
            failure_config=ray.train.FailureConfig(max_failures=1),
        ),
    )
    last = trainer.fit().metrics
    print(
        f"{options.workers} workers, backend {last['backend']}, step {last['step']}: loss of rank 0 {last['loss']:.6f}, parameters {last['parameters']}"
    )


if __name__ == "__main__":
    main()
