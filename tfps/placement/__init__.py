"""Where variables live: their cost, the policy that chooses a server, the plan. No TensorFlow."""

from tfps.placement.policy import ByPath, LeastLoaded, Placement, RoundRobin

__all__ = ["ByPath", "LeastLoaded", "Placement", "RoundRobin"]
