"""Gradients that travel by way of the host: encoded by a codec, and as the rows of an embedding."""

import torch
import torch.distributed as dist
from setting import Figures, Setting
from torch import Tensor, nn
from training import STEPS, Comparisons, adamw, each_step, plain_step, sgd

import dear

LOSSLESS = "sketch,most-density=1,dense-below=16"  # every gradient that it sends is the dense one


class Words(nn.Module):
    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(500, 8, sparse=sparse)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.words(tokens).tanh())


def train_words(device: str, sparse: bool) -> tuple[list[Tensor], int]:
    """What the parameters are at the end, and how many reductions went as rows."""
    torch.manual_seed(1)
    net = Words(sparse).to(device)
    model, optimizer = dear.distribute(net, sgd(net.parameters()), fusion="layer")
    for step in range(STEPS):
        tokens = (torch.arange(5) * (7 + dist.get_rank()) + 13 * step) % 500
        model(tokens.to(device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    as_rows = model.statistics()["sparse_as_rows"]
    model.close()
    return [parameter.detach().cpu().clone() for parameter in net.parameters()], as_rows


def check(setting: Setting) -> Figures:
    comparisons = Comparisons(setting)
    reference = "cpu" if setting.device.name == "stub" else setting.device.name
    for policy in ("dear", "wfbp"):
        comparisons.as_plain(
            each_step(plain_step), adamw, device=reference, waits=None, policy=policy, compression=LOSSLESS
        )
    for compression in ("top-k:0.1,ef,dense-below=16", "fp16,ef"):
        found, _ = comparisons.run(each_step(plain_step), sgd, compression=compression)
        assert all(torch.isfinite(tensor).all() for tensor in found), f"{compression}: parameters are not finite"
    figures: Figures = {}
    if setting.device.name != "stub":  # whose tensors are never sparse
        found, as_rows = train_words(setting.device.name, sparse=True)
        expected, _ = train_words(setting.device.name, sparse=False)
        comparisons.same(found, expected, "rows of an embedding")
        assert as_rows > 0, "no gradient travelled as rows"
        figures = {"reductions as rows": as_rows}
    return {**comparisons.figures(), **figures}
