"""Checkpoints that all servers write at the same time, and that fit any number of servers."""

from __future__ import annotations

from tfps.checkpoint.retention import AnyOf, KeepBest, KeepEvery, KeepLatest, RetentionPolicy
from tfps.keras_backend import check_backend

__all__ = ["AnyOf", "KeepBest", "KeepEvery", "KeepLatest", "RetentionPolicy"]

check_backend()
