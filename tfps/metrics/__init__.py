"""Metrics whose states several workers count: how they become one."""

from tfps.keras_backend import check_backend

check_backend()

from tfps.metrics.merging import register_merge

__all__ = ["register_merge"]
