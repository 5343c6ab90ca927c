"""plan_kfac(): what K-FAC costs for a model on a modelled cluster, and which way of it costs least."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from typing import Any

from . import _C, _html
from ._simulation import _MODELLED, Cluster, Model, _list, _model


@dataclasses.dataclass(frozen=True)
class KfacRow:
    """One way of K-FAC. Times are those of one iteration, in seconds."""

    model: str
    cluster: str
    ranks: int
    policy: str
    """ "d-kfac", "mpd-kfac", "spd-kfac", or the last two with "-owner"."""
    factor_every: int
    """Iterations from factors to factors."""
    inverse_every: int
    iteration_seconds: float
    """The sum of the seven below."""
    passes_seconds: float
    exposed_gradients_seconds: float
    """Gradients travel, and nothing is computed."""
    factors_seconds: float
    exposed_factors_seconds: float
    inverses_seconds: float
    exposed_inverses_seconds: float
    update_seconds: float
    """Preconditioning, and the optimiser."""
    factors: int
    """How many."""
    groups: int
    """How many collectives of factors."""
    inverses_sent: int
    """How many are computed by one rank and sent to all others."""
    left_out: list[str]
    """Layers that are too large for curvature."""
    curvature_bytes: int
    """Memory of factors and inverses, on one rank."""
    factor_fusion: str = ""
    """ "rule", "exact", "threshold" or "together"."""
    inverse_placement: str = ""
    """ "local", "round-robin", "balanced" or "planned"."""
    why: str = ""
    """The communication that a rank waits for most."""


@dataclasses.dataclass(frozen=True)
class KfacPlan:
    """The answer of plan_kfac()."""

    model: str
    cluster: str
    ranks: int
    rows: tuple[KfacRow, ...]
    """With curvature anew in every iteration, the fastest first."""
    seldom: tuple[KfacRow, ...]
    """The fastest, with curvature renewed less often."""
    sgd: dict[str, Any]
    """The fastest policy for plain gradients: "policy", "iteration_seconds"."""
    verdict: tuple[str, ...]
    """Sentences: what to use, what is hidden, why inverses are placed so, when K-FAC pays."""

    def to_dict(self) -> dict[str, Any]:
        """The element of the list that `dear plan --optimizer kfac --json` writes."""
        added = ("factor_fusion", "inverse_placement", "why")
        seldom = [
            {name: value for name, value in dataclasses.asdict(row).items() if name not in added} for row in self.seldom
        ]
        return {**dataclasses.asdict(self), "seldom": seldom, "rows": [dataclasses.asdict(row) for row in self.rows],
                "verdict": list(self.verdict)}  # fmt: skip

    def _repr_html_(self) -> str:
        head = ("policy", "fusion", "placement", "iteration", "passes", "factors", "factors sent", "inverses",
                "inverses sent", "what it waits for")  # fmt: skip
        rows = [
            (
                row.policy,
                row.factor_fusion,
                row.inverse_placement,
                *(
                    _C.format_seconds(seconds)
                    for seconds in (
                        row.iteration_seconds,
                        row.passes_seconds,
                        row.factors_seconds,
                        row.exposed_factors_seconds,
                        row.inverses_seconds,
                        row.exposed_inverses_seconds,
                    )
                ),
                row.why,
            )
            for row in self.rows
        ]
        caption = f"{self.model} on {self.cluster}, {self.ranks} {'rank' if self.ranks == 1 else 'ranks'}, with K-FAC"
        return _html.table(head, rows, left=3, caption=caption, marked=0, below=[*self.verdict, _MODELLED])


def plan_kfac(
    model: Model,
    cluster: Cluster,
    *,
    ranks: int | None = None,
    policy: str | Iterable[str] = (),
    algorithm: str = "auto",
    device: str = "",
    batch: int = 0,
    size: int = 0,
    dtype: str = "",
) -> KfacPlan:
    """The strategy, fusion of factors and placement of inverses to use for a model on a cluster with K-FAC, and how
    many iterations of SGD fit into one of K-FAC, as `dear plan --optimizer kfac` (docs/planner.md).

    `policy` names the strategies to choose from; none: all. The other arguments are those of `plan`.

    Raises:
        ConfigError: for a name that there is not, a workload whose shapes nobody knows, or numbers that cannot be.
    """
    text = _C.plan_kfac(
        model=_model(model),
        cluster=os.fspath(cluster),
        ranks=ranks,
        model_options=_C.ModelOptions(device=device, batch=batch, size=size, dtype=dtype, optimizer_states=1),
        policies=_list(policy, str),
        algorithm=algorithm,
    )
    [fields] = json.loads(text)
    fields["rows"] = tuple(KfacRow(**row) for row in fields["rows"])
    fields["seldom"] = tuple(KfacRow(**row) for row in fields["seldom"])
    fields["verdict"] = tuple(fields["verdict"])
    return KfacPlan(**fields)
