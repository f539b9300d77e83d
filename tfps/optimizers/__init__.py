"""Applies gradients on servers with any Keras optimizer.

The public names are optimizers that correct stale gradients, updates of single rows, and learning
rates that are scaled to another batch size.
"""

from tfps.keras_backend import check_backend

check_backend()

from tfps.optimizers.by_table import ByTable
from tfps.optimizers.dana import DANA
from tfps.optimizers.gap_aware import GapAware
from tfps.optimizers.row_updates import RowUpdates
from tfps.optimizers.scaled_rate import ScaledRate
from tfps.optimizers.staleness_aware import StalenessAware

__all__ = [
    "DANA",
    "ByTable",
    "GapAware",
    "RowUpdates",
    "ScaledRate",
    "StalenessAware",
]
