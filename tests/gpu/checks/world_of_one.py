"""One rank trains as plain PyTorch does, to the bit; a world of one has no buckets and no communication stream."""

from setting import Figures, Setting
from training import Comparisons, adamw, each_step, fused_adamw, plain_step, sgd


def check(setting: Setting) -> Figures:
    comparisons = Comparisons(setting)
    for optimizer_of in (sgd, adamw, fused_adamw):
        comparisons.as_plain(each_step(plain_step), optimizer_of)
    return comparisons.figures()
