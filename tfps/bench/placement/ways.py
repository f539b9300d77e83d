"""The ways of dividing and placing variables that `tfps bench placement` compares."""

from __future__ import annotations

from dataclasses import dataclass

from tfps.partitioners import Balanced, MinSizePartitioner, Partitioner, Whole
from tfps.placement.policy import LeastLoaded, Placement, RoundRobin


@dataclass(frozen=True)
class Way:
    """A partitioner and a placement.

    Args:
        title: what tables and plots call it.
        partitioner: divides variables.
        placement: places what comes of it.
    """

    title: str
    partitioner: Partitioner
    placement: Placement


TENSORFLOW, BALANCED = "tensorflow", "balanced"
WAYS = {
    TENSORFLOW: Way("TensorFlow, whole", Whole(), RoundRobin()),
    "tensorflow_divided": Way("TensorFlow, by size", MinSizePartitioner(), RoundRobin()),
    "whole": Way("whole, least loaded", Whole(), LeastLoaded()),
    "divided": Way("by size, least loaded", MinSizePartitioner(), LeastLoaded()),
    BALANCED: Way("balanced", Balanced(), LeastLoaded()),
}
