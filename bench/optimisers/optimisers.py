"""Optimisers of PyPI: what to install, and how to make each."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch

PACKAGES = (
    "pytorch_optimizer==4.1.0",
    "schedulefree==1.4.1",
    "prodigyopt==1.1.2",
    "lion-pytorch==0.2.5",
    "adan-pytorch==0.1.0",
    "bitsandbytes==0.50.2",
    "torchao==0.18.0",
    "dadaptation==3.2",
    "apollo-torch==1.0.3",
)

# By module: names of classes; "" stands for all classes of pytorch_optimizer.
OTHERS = {
    "torch.optim": (
        "SGD",
        "Adam",
        "AdamW",
        "NAdam",
        "RAdam",
        "Adamax",
        "Adagrad",
        "Adadelta",
        "RMSprop",
        "ASGD",
        "Rprop",
    ),
    "schedulefree": ("SGDScheduleFree", "AdamWScheduleFree", "RAdamScheduleFree"),
    "prodigyopt": ("Prodigy",),
    "lion_pytorch": ("Lion",),
    "adan_pytorch": ("Adan",),
    "bitsandbytes.optim": ("Adam8bit", "AdamW8bit", "Lion8bit", "AdEMAMix8bit", "AdamW32bit"),
    "torchao.optim": ("AdamW8bit", "AdamW4bit", "AdamWFp8"),
    "dadaptation": ("DAdaptAdam", "DAdaptSGD", "DAdaptLion", "DAdaptAdaGrad", "DAdaptAdan"),
    "apollo_torch": ("APOLLOAdamW", "GaLoreAdamW"),
}

# Of pytorch_optimizer: those that need more than parameters to be made.
MORE: dict[str, dict[str, Any]] = {"bsam": {"num_data": 100}, "alig": {}, "scalableshampoo": {"block_size": 8}}
LEFT_OUT = {
    "adalomo": "it steps inside backward()",
    "lomo": "it steps inside backward()",
    "adammini": "it takes the model, not parameters",
    "demo": "it communicates itself",
    "distributedmuon": "it communicates itself",
}


def of_pytorch_optimizer(name: str) -> Callable[[Any], Any]:
    def make(parameters: Any) -> Any:
        made = importlib.import_module("pytorch_optimizer").load_optimizer(name)
        options = dict(MORE.get(name, {}))
        if "lr" in inspect.signature(made.__init__).parameters:
            options["lr"] = 1e-2
        if name in ("muon", "adamuon", "adago", "normuon", "muonclip", "spectralsphere", "aida"):
            parameters = split_by_rank(parameters, made)
        return made(parameters, **options)

    return make


def split_by_rank(parameters: Any, _: Any) -> Any:
    """Matrices in a group that says so, the rest in another, as Muon and those after it want them."""
    groups = []
    for group in [one if isinstance(one, dict) else {"params": [one]} for one in parameters]:
        for matrices in (True, False):
            members = [p for p in group["params"] if (p.ndim == 2) == matrices]
            if members:
                groups.append({**group, "params": members, "use_muon": matrices})
    return [
        {**groups[0], "params": [p for g in groups if g["use_muon"] == kind for p in g["params"]], "use_muon": kind}
        for kind in (True, False)
        if any(g["use_muon"] == kind for g in groups)
    ]


def of_module(module: str, name: str) -> Callable[[Any], Any]:
    def make(parameters: Any) -> Any:
        made = getattr(importlib.import_module(module), name)
        rate = 1.0 if name in ("Prodigy",) or name.startswith("DAdapt") else 1e-2
        return made(parameters, lr=rate)

    return make


def all_of() -> dict[str, Callable[[Any], Any]]:
    found: dict[str, Callable[[Any], Any]] = {}
    for module, names in OTHERS.items():
        for name in names:
            found[f"{module}.{name}"] = of_module(module, name)
    for name in importlib.import_module("pytorch_optimizer").get_supported_optimizers():
        if name not in LEFT_OUT:
            found[f"pytorch_optimizer.{name}"] = of_pytorch_optimizer(name)
    return found


def tensors_of(optimizer: Any) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
