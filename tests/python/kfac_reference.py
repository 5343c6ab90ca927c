"""K-FAC on one process in plain torch, as dear.KFAC is tested against it.

Martens and Grosse 2015, arXiv 1503.05671; Grosse and Martens 2016, arXiv 1602.01407; the conventions of
Shi et al. 2021, arXiv 2107.06533. Slow and short: every step computes and inverts every factor.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class ReferenceKfac:
    """Preconditions the gradients of all Linear and Conv2d layers of a model, whose loss is a mean."""

    def __init__(
        self,
        model: nn.Module,
        *,
        damping: float = 1e-3,
        ema: float = 0.95,
        kl_clip: float | None = 1e-3,
        pi: bool = False,
        exclude: tuple[str, ...] = (),
    ) -> None:
        self.damping, self.ema, self.kl_clip, self.pi = damping, ema, kl_clip, pi
        self.layers = {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, (nn.Linear, nn.Conv2d)) and name not in exclude
        }
        self.inputs: dict[str, list[Tensor]] = {name: [] for name in self.layers}
        self.outputs: dict[str, list[Tensor]] = {name: [] for name in self.layers}
        self.factors: dict[str, tuple[Tensor, Tensor]] = {}
        for name, module in self.layers.items():
            module.register_forward_hook(self._saw(name))

    def _saw(self, name: str):  # noqa: ANN202
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            if not torch.is_grad_enabled() or not module.training:
                return
            self.inputs[name].append(inputs[0].detach())
            output.register_hook(lambda gradient: self.outputs[name].append(gradient.detach()))

        return hook

    def _rows(self, module: nn.Module, value: Tensor) -> tuple[Tensor, int]:
        """A row for each sample, or for each of its patches; and the number of patches of a sample."""
        if isinstance(module, nn.Linear):
            flat = value.reshape(-1, value.shape[-1])
            return flat, 1
        patches = functional.unfold(value, module.kernel_size, module.dilation, module.padding, module.stride)
        return patches.transpose(1, 2).reshape(-1, patches.shape[1]), patches.shape[2]

    def _new_factors(self, name: str) -> tuple[Tensor, Tensor]:
        """Uses of a layer add up as passes do: each is a mean over its own samples."""
        module = self.layers[name]
        a_sum, g_sum, samples = 0.0, 0.0, 0
        for value, gradient in zip(self.inputs[name], reversed(self.outputs[name])):
            rows, spread = self._rows(module, value)
            if module.bias is not None:
                rows = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
            if isinstance(module, nn.Conv2d):
                gradient = gradient.permute(0, 2, 3, 1)
            g = gradient.reshape(-1, gradient.shape[-1])
            count = len(rows) // spread
            # A mean over samples divides the gradient of each of them by their number.
            a_sum = a_sum + rows.T @ rows / spread**2
            g_sum = g_sum + g.T @ g * count**2 * spread
            samples += count
        return a_sum / samples, g_sum / samples

    def step(self, learning_rate: float) -> None:
        """Between backward() and the step of the optimiser."""
        updates: list[tuple[nn.Module, Tensor]] = []
        total = 0.0
        for name, module in self.layers.items():
            a_new, g_new = self._new_factors(name)
            a, g = self.factors.get(name, (torch.eye(len(a_new)).to(a_new), torch.eye(len(g_new)).to(g_new)))
            a = self.ema * a + (1 - self.ema) * a_new
            g = self.ema * g + (1 - self.ema) * g_new
            self.factors[name] = (a, g)
            ratio = 1.0
            damp = (self.damping, self.damping)
            if self.pi:
                ratio = math.sqrt((a.trace() / len(a)) / (g.trace() / len(g)))
                damp = (math.sqrt(self.damping) * ratio, math.sqrt(self.damping) / ratio)
            gradient = module.weight.grad.reshape(len(g), -1)
            if module.bias is not None:
                gradient = torch.cat([gradient, module.bias.grad.reshape(-1, 1)], dim=1)
            left = torch.linalg.solve(g + damp[1] * torch.eye(len(g)).to(g), gradient)
            update = torch.linalg.solve(a + damp[0] * torch.eye(len(a)).to(a), left.T).T
            total += float((update * gradient).sum()) * learning_rate**2
            updates.append((module, update))
            self.inputs[name].clear()
            self.outputs[name].clear()
        scale = 1.0
        if self.kl_clip is not None and total != 0:
            scale = min(1.0, math.sqrt(self.kl_clip / abs(total)))
        for module, update in updates:
            if module.bias is not None:
                module.bias.grad.copy_(scale * update[:, -1].reshape(module.bias.shape))
                update = update[:, :-1]
            module.weight.grad.copy_(scale * update.reshape(module.weight.shape))
