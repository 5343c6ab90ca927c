"""A training that C++ saved goes on in Python, and back:  languages_test.py DEAR

Under `DEAR launch` this file is the program of each rank.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from typing import Any

import torch
from torch import nn

import dear

TRAIN = ["train", "--workers", "2", "--layers", "1", "--width", "32", "--context", "16", "--threads", "1"]


def module_like(tensors: dict[str, torch.Tensor]) -> nn.Module:
    """A module whose parameters have these names and shapes."""
    root = nn.Module()
    for name, tensor in tensors.items():
        *path, last = name.split(".")
        module = root
        for part in path:
            if part not in module._modules:
                module.add_module(part, nn.Module())
            module = module.get_submodule(part)
        module.register_parameter(last, nn.Parameter(torch.zeros_like(tensor)))
    return root


def put_back(path: str) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    saved = torch.load(path, weights_only=True)
    module = module_like(saved["model"])
    model, _ = dear.distribute(module, torch.optim.AdamW(module.parameters()), fusion="8KiB")
    return saved, model, dear.load(path, model)


def on_a_rank(path: str) -> None:
    """Loads what C++ saved, and saves it again in its place; a copy of it trains on."""
    torch.set_num_threads(1)
    saved, model, position = put_back(path)
    assert position == saved["position"] and position["step"] == 3, position
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, saved["model"][name]), name
    (group,) = model.optimizer.param_groups
    (theirs,) = saved["optimizer"]["param_groups"]
    assert group["lr"] == theirs["lr"] and group["betas"] == theirs["betas"], (group, theirs)
    dear.save(path, model, position)
    again = torch.load(path, weights_only=True)
    for number, state in saved["optimizer"]["state"].items():
        for vector, tensor in state.items():
            assert torch.equal(torch.as_tensor(again["optimizer"]["state"][number][vector]), tensor), vector
    model.close()

    _, model, _ = put_back(path)
    sum(parameter.square().sum() for parameter in model.parameters()).backward()
    model.optimizer.step()
    state = model.optimizer.state_dict()["state"]
    assert {float(one["step"]) for one in state.values()} == {4.0}, state
    model.close()


class Languages(unittest.TestCase):
    def test_a_training_of_cpp_goes_through_python_and_back_to_the_bit(self) -> None:
        command = sys.argv[1]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}

        def run(*arguments: str) -> None:
            subprocess.run([command, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)

        with tempfile.TemporaryDirectory() as folder:
            at = pathlib.Path(folder)
            run(*TRAIN, "--steps", "6", "--json", str(at / "whole.json"))
            for ending in ("first", "second"):
                save = ["--save", str(at / ending), "--every", "3"]
                run(*TRAIN, "--steps", "3", *save)
                if ending == "second":
                    file = at / ending / "step-00000003.pt"
                    run("launch", "-n", "2", sys.executable, "-B", __file__, str(file))
                run(*TRAIN, "--steps", "6", *save, "--resume", "--json", str(at / f"{ending}.json"))
                digests = [json.loads((at / f"{name}.json").read_text())["digest"] for name in ("whole", ending)]
                self.assertEqual(digests[0], digests[1], ending)


if __name__ == "__main__":
    if "RANK" in os.environ:
        on_a_rank(sys.argv[1])
    else:
        unittest.main(argv=sys.argv[:1])
