"""DeAR: data-parallel training whose communication is hidden under the backward and the next forward pass."""

import torch

from . import _torch_release
from ._version import __version__, torch_release

_torch_release.check(torch.__version__, torch_release)

# The check says more than the loader of the extension module would.
from ._auc import AUCMLoss, DualSampler, auc
from ._backend_choice import init_process_group
from ._balance import BalancedSampler, ShardWeights, shard_weights
from ._batch_norm import SyncBatchNorm
from ._C import (
    ConfigError,
    Error,
    Group,
    MismatchError,
    ScheduleError,
    TimeoutError,
    TransportError,
    init,
    training_policies,
)
from ._checkpoint import load, save
from ._checkpoint_exchange import export_checkpoint, import_checkpoint
from ._checkpoints import Checkpoints
from ._coda import CoDA
from ._distribute import DataParallel, distribute, own
from ._distributed import ModelledNetwork
from ._distributed import register as _register
from ._elastic import Elastic
from ._failures import install as _install
from ._join import Join, join
from ._kfac import KFAC
from ._kfac_planning import KfacPlan, KfacRow, plan_kfac
from ._model_parts import Parts, distribute_parts
from ._moe import MoE
from ._moe_linears import defer_weight_gradients, restore_weight_gradients
from ._moe_transformers import share_out_experts
from ._pipeline import Pipeline, pipeline
from ._planning import CompressedRow, Gain, LeftOut, Plan, PlannedRound, PlannedRounds, PlanRow, Sensitivity, plan
from ._report import Report, report
from ._rounds import DiLoCo, LocalSGD
from ._simulation import Case, Simulation, Timeline, clusters, models, policies, simulate
from ._stop import StopOnSignal
from ._tensor_norms import LAMB, LARS, TensorNormOptimizer
from ._trace import Trace
from ._watching import BucketGradients, OverRanks, StepMetrics, TensorBoard
from ._workload import Layer, Tensor, Workload

_register()
_install()

__all__ = [
    "AUCMLoss",
    "BalancedSampler",
    "BucketGradients",
    "Case",
    "Checkpoints",
    "CoDA",
    "CompressedRow",
    "ConfigError",
    "DataParallel",
    "DiLoCo",
    "DualSampler",
    "Elastic",
    "Error",
    "Gain",
    "Group",
    "Join",
    "KFAC",
    "KfacPlan",
    "KfacRow",
    "LAMB",
    "LARS",
    "Layer",
    "LeftOut",
    "LocalSGD",
    "MismatchError",
    "MoE",
    "ModelledNetwork",
    "OverRanks",
    "Parts",
    "Pipeline",
    "Plan",
    "PlanRow",
    "PlannedRound",
    "PlannedRounds",
    "Report",
    "ScheduleError",
    "ShardWeights",
    "Sensitivity",
    "Simulation",
    "StepMetrics",
    "StopOnSignal",
    "SyncBatchNorm",
    "Tensor",
    "TensorBoard",
    "TensorNormOptimizer",
    "Timeline",
    "TimeoutError",
    "Trace",
    "TransportError",
    "Workload",
    "__version__",
    "auc",
    "clusters",
    "defer_weight_gradients",
    "distribute",
    "distribute_parts",
    "export_checkpoint",
    "import_checkpoint",
    "init",
    "init_process_group",
    "join",
    "load",
    "models",
    "own",
    "pipeline",
    "plan",
    "plan_kfac",
    "policies",
    "report",
    "restore_weight_gradients",
    "save",
    "shard_weights",
    "share_out_experts",
    "simulate",
    "training_policies",
]
