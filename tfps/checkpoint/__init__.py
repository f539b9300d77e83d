"""Checkpoints that all servers write at the same time, and that fit any number of servers."""

from __future__ import annotations

from tfps.checkpoint.retention import KeepAny, KeepBest, KeepEvery, KeepLatest, Retention
from tfps.keras_backend import check_backend

__all__ = ["KeepAny", "KeepBest", "KeepEvery", "KeepLatest", "Retention"]

check_backend()
