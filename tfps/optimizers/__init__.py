"""How a server applies gradients: any Keras optimizer, on the variables of one server.

For users: optimizers that know how stale a gradient is, updates of rows, and rates for another
batch.
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
