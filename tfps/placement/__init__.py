"""Placement of variables: sizes, the policies that choose servers, the plan. No TensorFlow."""

from tfps.placement.policy import AllReduce, ByPath, LeastLoaded, Placement, RoundRobin

__all__ = ["AllReduce", "ByPath", "LeastLoaded", "Placement", "RoundRobin"]
