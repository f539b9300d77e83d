"""Merging of metric states that several workers have counted."""

from tfps.keras_backend import check_backend

check_backend()

from tfps.metrics.merging import register_merge

__all__ = ["register_merge"]
