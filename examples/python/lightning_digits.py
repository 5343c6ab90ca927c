"""Trains a multi-layer perceptron on the handwritten digits of scikit-learn, in a Lightning Trainer.

  python lightning_digits.py --devices 2
  torchrun --nproc-per-node 2 lightning_digits.py --devices 2
  python lightning_digits.py --devices 2 --strategy ddp      Lightning's own DDP, for comparison

Lightning starts the other processes, where no launcher did. All ranks together take `--batch` samples in a step, so the losses do not
depend on the number of ranks. Needs lightning, and scikit-learn, which holds the images: nothing is downloaded.
"""

import argparse
import logging
import sys
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader

try:
    import lightning
except ModuleNotFoundError:
    sys.exit("lightning_digits.py needs Lightning: pip install lightning==2.6.6")
import dear.lightning  # noqa: F401 (makes strategy="dear" known)

from digits import make_model, read_digits  # isort: skip


class Digits(lightning.LightningModule):
    def __init__(self, width: int, report: int) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net, self.report = make_model(width), report

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        mean = self.trainer.strategy.reduce(loss.detach().clone())
        if (self.global_step + 1) % self.report == 0 and self.trainer.is_global_zero:
            print(f"step {self.global_step + 1:4}  loss {mean.item():.4f}", flush=True)
        return loss

    def test_step(self, batch: list[torch.Tensor], index: int) -> None:
        images, labels = batch
        found = (self.net(images).argmax(1) == labels).float().mean()
        self.log("found", found, sync_dist=True)

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=2e-3)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 96, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=64, help="samples of all ranks in a step")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--report", type=int, default=24, help="steps from one report to the next")
    parser.add_argument("--devices", type=int, default=1, help="processes on this machine")
    parser.add_argument("--strategy", default="dear", help="dear, or ddp")
    options = parser.parse_args()

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    train, test = read_digits()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=options.devices,
        strategy=options.strategy,
        max_steps=options.steps,
        max_epochs=-1,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    batch = options.batch // trainer.world_size
    module = Digits(options.width, options.report)
    trainer.fit(module, DataLoader(train, batch_size=batch, drop_last=True))
    found = trainer.test(module, DataLoader(test, batch_size=batch), verbose=False)[0]["found"]
    if trainer.is_global_zero:
        print(f"{100 * found:.1f} % of the other digits found, {trainer.world_size} ranks")


if __name__ == "__main__":
    main()
