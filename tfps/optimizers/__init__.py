"""Applies gradients on servers with any Keras optimizer.

The public names are optimizers for stale gradients, and updates of single rows.
"""

from tfps.keras_backend import check_backend

check_backend()

from tfps.optimizers.async_adam import AsyncAdam
from tfps.optimizers.by_table import ByTable
from tfps.optimizers.dana import DANA
from tfps.optimizers.sparse_updates import SparseUpdates
from tfps.optimizers.staleness_aware import StalenessAware

__all__ = ["DANA", "AsyncAdam", "ByTable", "SparseUpdates", "StalenessAware"]
