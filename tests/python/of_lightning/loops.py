"""Lightning Fabric."""

from __future__ import annotations

from typing import Any

import torch
from dear.lightning import DearFabricStrategy
from lightning.fabric import Fabric
from lightning.fabric.plugins import MixedPrecision

import dear

from .registry import FOLDER, Net, behaviour, close, loader, refuses, same_parameters
from .steps import Gan


def loop(
    strategy: Any, clip: str = "", accumulate: int = 1, steps: int = 8, file: str = "", read: str = "", **options: Any
) -> Any:
    fabric = Fabric(accelerator="cpu", devices=2, strategy=strategy, **options)
    fabric.launch()
    net = Net("adamw")
    model, optimizer = fabric.setup(net.net, net.configure_optimizers())
    batches = fabric.setup_dataloaders(loader(64))
    state = {"model": model, "optimizer": optimizer}
    if read:
        fabric.load(FOLDER / read, state)
    losses = []
    for index, (x,) in enumerate(batches):
        last = index % accumulate == accumulate - 1
        with fabric.no_backward_sync(model, enabled=not last):
            loss = (model(x) - x[:, :3].sin()).square().mean()
            fabric.backward(loss / accumulate)
        losses.append(loss.item())
        if last:
            if clip == "norm":
                fabric.clip_gradients(model, optimizer, max_norm=0.2)
            elif clip == "value":
                fabric.clip_gradients(model, optimizer, clip_val=0.01)
            optimizer.step()
            optimizer.zero_grad()
    if file:
        fabric.save(FOLDER / file, state)
    same = net.net if not isinstance(model._forward_module, dear.DataParallel) else model._forward_module.module
    if isinstance(model._forward_module, dear.DataParallel):
        model._forward_module.close()
    return losses, same


def both(exactly: bool = True, options: Any = dict, **more: Any) -> None:
    (theirs, net), (mine, other) = (loop(one, **options(), **more) for one in ("ddp", "dear"))
    close(mine, theirs)
    same_parameters(other, net, 0.0 if exactly else 1e-6)


@behaviour("(fabric) test_ddp_strategy, test_ddp_no_backward_sync", "a loop of Fabric, with accumulation and clipping")
def fabric_loop() -> None:
    both()
    both(accumulate=2)
    both(exactly=False, clip="norm")
    both(clip="value")


@behaviour("(fabric) test_ddp_grad_clipping, test_precision", "a loop of Fabric in bf16-mixed, and with a GradScaler")
def fabric_precisions() -> None:
    both(exactly=False, clip="norm", precision="bf16-mixed")

    def scaled() -> dict[str, Any]:
        return {"plugins": [MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=1024.0))]}

    both(exactly=False, clip="norm", options=scaled)


@behaviour("(fabric) test_ddp_save_load", "files of Fabric by DDP and by DeAR, loaded by either")
def fabric_files() -> None:
    for writer in ("ddp", "dear"):
        loop(writer, file=f"fabric-{writer}.ckpt")
    results = [loop(reader, read=f"fabric-{writer}.ckpt") for writer in ("ddp", "dear") for reader in ("ddp", "dear")]
    for losses, net in results[1:]:
        close(losses, results[0][0])
        same_parameters(net, results[0][1])


@behaviour(
    "(fabric) test_setup_module",
    "a model set up without its optimiser",
    "refused; one that is frozen is taken as it is",
)
def fabric_module_alone() -> None:
    fabric = Fabric(accelerator="cpu", devices=2, strategy=DearFabricStrategy(policy="wfbp"))
    fabric.launch()
    refuses(dear.ConfigError, lambda: fabric.setup(Net().net), "fabric.setup(model, optimizer)")
    frozen = Net().net.requires_grad_(False)
    assert fabric.setup(frozen)(torch.ones(1, 8)).shape == (1, 3)


@behaviour("(fabric) test_setup_multiple_optimizers", "several optimisers over parts of one model")
def fabric_parts() -> None:
    results = []
    for strategy in ("ddp_find_unused_parameters_true", "dear"):
        fabric = Fabric(accelerator="cpu", devices=2, strategy=strategy)
        fabric.launch()
        net = Gan(True)
        module, first, second = fabric.setup(
            torch.nn.Sequential(net.generator, net.discriminator), *net.configure_optimizers()[0]
        )
        losses = []
        for (x,) in fabric.setup_dataloaders(loader()):
            for optimizer in (first, second):
                optimizer.zero_grad()
                loss = module(x).square().mean()
                fabric.backward(loss)
                optimizer.step()
                losses.append(loss.item())
        results.append(losses)
    close(results[1], results[0])
