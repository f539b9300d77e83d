"""tfps: parameter-server training for TensorFlow 2 and Keras 3.

Names are resolved when they are first used: ``import tfps`` costs no TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tfps.keras_backend import check_backend
from tfps.terminal import show_own_records

__version__ = "0.2.0"

if TYPE_CHECKING:
    from tfps.checkpoint.manager import CheckpointManager
    from tfps.consistency.local_steps import LocalSteps
    from tfps.consistency.modes import Asynchronous, BoundedStaleness
    from tfps.consistency.synchronous import Synchronous
    from tfps.evaluation.best_model import SidecarEvaluatorModelExport
    from tfps.evaluation.sidecar_evaluator import SidecarEvaluator
    from tfps.launch.local_cluster import LocalCluster
    from tfps.recovery.fault_tolerance import FaultTolerance
    from tfps.strategy.coordinator import ClusterCoordinator
    from tfps.strategy.job import Job
    from tfps.strategy.parameter_server import ParameterServerStrategy
    from tfps.strategy.reading.attach import attach
    from tfps.strategy.reading.attachment import Attachment
    from tfps.training.input.sharded_dataset import ShardedDataset

_HOMES = {
    "Asynchronous": "tfps.consistency.modes",
    "Attachment": "tfps.strategy.reading.attachment",
    "BoundedStaleness": "tfps.consistency.modes",
    "CheckpointManager": "tfps.checkpoint.manager",
    "ClusterCoordinator": "tfps.strategy.coordinator",
    "FaultTolerance": "tfps.recovery.fault_tolerance",
    "Job": "tfps.strategy.job",
    "LocalCluster": "tfps.launch.local_cluster",
    "LocalSteps": "tfps.consistency.local_steps",
    "ParameterServerStrategy": "tfps.strategy.parameter_server",
    "ShardedDataset": "tfps.training.input.sharded_dataset",
    "SidecarEvaluator": "tfps.evaluation.sidecar_evaluator",
    "SidecarEvaluatorModelExport": "tfps.evaluation.best_model",
    "Synchronous": "tfps.consistency.synchronous",
    "attach": "tfps.strategy.reading.attach",
}
# What a project on another backend of Keras may use: pytest has the plugin in all of them.
_ON_ANY_BACKEND = ("errors", "testing")

__all__ = [
    "Asynchronous",
    "Attachment",
    "BoundedStaleness",
    "CheckpointManager",
    "ClusterCoordinator",
    "FaultTolerance",
    "Job",
    "LocalCluster",
    "LocalSteps",
    "ParameterServerStrategy",
    "ShardedDataset",
    "SidecarEvaluator",
    "SidecarEvaluatorModelExport",
    "Synchronous",
    "attach",
    "callbacks",
    "checkpoint",
    "compression",
    "errors",
    "layers",
    "metrics",
    "optimizers",
    "partitioners",
    "placement",
    "schedules",
    "testing",
]

show_own_records()


def __getattr__(name: str) -> Any:
    if name not in __all__:
        now = "; write tfps.FaultTolerance" if name in ("Recovery", "Restarts") else ""
        raise AttributeError(f"module 'tfps' has no attribute {name!r}{now}")
    if name not in _ON_ANY_BACKEND:
        check_backend()
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    return importlib.import_module(f"tfps.{name}")


def __dir__() -> list[str]:
    return sorted(__all__)
