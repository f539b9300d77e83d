"""Callbacks for `fit`."""

from __future__ import annotations

from tfps.checkpoint.callback import Checkpoint

__all__ = ["Checkpoint"]
