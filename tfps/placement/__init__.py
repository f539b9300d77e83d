"""Placement of variables: sizes, the policies that choose servers, the plan. No TensorFlow."""

from tfps.placement.policy import ByPath, LeastLoaded, Placement, RoundRobin

__all__ = ["ByPath", "LeastLoaded", "Placement", "RoundRobin"]
