"""Callbacks for `fit`."""

from __future__ import annotations

from tfps.checkpoint.callback import Checkpoint
from tfps.strategy.reading.cluster_board import ClusterBoard

__all__ = ["Checkpoint", "ClusterBoard"]
