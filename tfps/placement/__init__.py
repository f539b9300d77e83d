"""Where variables live: their cost, the policy that chooses a server, the plan. No TensorFlow."""

from tfps.placement.policy import ByRule, LeastLoaded, Newcomer, Placement, RoundRobin

__all__ = ["ByRule", "LeastLoaded", "Newcomer", "Placement", "RoundRobin"]
