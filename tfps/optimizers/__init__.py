"""How a server applies gradients: any Keras optimizer, on the variables of one server.

For users: optimizers that know how stale a gradient is, and rates for another batch.
"""

from tfps.optimizers.scaled_rate import ScaledRate
from tfps.optimizers.staleness_aware import StalenessAware

__all__ = ["ScaledRate", "StalenessAware"]
