"""Callbacks for `fit`."""

from __future__ import annotations

from tfps.checkpoint.callback import Checkpoint
from tfps.strategy.reading.cluster_board import ClusterBoard
from tfps.training.resume import Resume

__all__ = ["Checkpoint", "ClusterBoard", "Resume"]
