"""torch.compile of the blocks of a model, before dear.distribute()."""

import importlib.util

from setting import Figures, NotHere, Setting
from training import Comparisons, Net, each_step, plain_step


def check(setting: Setting) -> Figures:
    backend = "eager" if setting.device.name == "stub" else "inductor"
    if backend == "inductor" and importlib.util.find_spec("triton") is None:
        raise NotHere("Triton is not installed, with which torch.compile makes kernels")

    def prepare(net: Net) -> None:
        for block in net.blocks:
            block.compile(backend=backend, fullgraph=True)

    comparisons = Comparisons(setting)
    comparisons.as_plain(each_step(plain_step), waits=None, prepare=prepare)
    return {**comparisons.figures(), "backend of torch.compile": backend}
