"""Keep: checkpoints that the servers write side by side, and that fit any number of them."""

from __future__ import annotations

from tfps.checkpoint.retention import KeepAny, KeepBest, KeepEvery, KeepLatest, Retention
from tfps.keras_backend import check_backend

__all__ = ["KeepAny", "KeepBest", "KeepEvery", "KeepLatest", "Retention"]

check_backend()
