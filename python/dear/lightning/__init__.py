"""DeAR for Lightning 2.6: `import dear.lightning`, then Trainer(strategy="dear") or Fabric(strategy="dear").

    import dear.lightning

    trainer = lightning.Trainer(strategy="dear", accelerator="cpu", devices=2)

Options go to the strategy: Trainer(strategy=dear.lightning.DearStrategy(policy="dear", fusion="25MB")). See docs/lightning.md.
`import dear` alone imports nothing of Lightning. ImportError, with what to install, where Lightning is missing.
"""

import importlib.util

if importlib.util.find_spec("lightning") is None:
    raise ImportError("dear.lightning needs the package lightning: pip install lightning==2.6.6")

from ._fabric import DearFabricStrategy
from ._trainer import DearStrategy

__all__ = ["DearFabricStrategy", "DearStrategy"]
