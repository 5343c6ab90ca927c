"""For ranks that a test starts: PyTorch without torch.compile."""

from __future__ import annotations

import sys
import types

import torch


def leave_the_compiler_out() -> None:
    """torch.optim has its methods left alone by torch.compile, and to import that takes longer than a small training.
    Called once the process groups exist, which ask it for something where it is imported."""
    compiler = types.ModuleType("torch._dynamo")
    compiler.disable = lambda function, *_, **__: function  # type: ignore[attr-defined]
    compiler.graph_break = lambda: None  # type: ignore[attr-defined]
    sys.modules["torch._dynamo"] = torch._dynamo = compiler
