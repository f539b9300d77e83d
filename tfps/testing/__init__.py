"""Tests without a cluster, and of clusters: commands with deadlines, checks for what is left."""

from tfps.testing.command import Command, run_command
from tfps.testing.leaks import Leftovers, watch_leftovers
from tfps.testing.one_process import OneProcess

__all__ = [
    "Command",
    "Leftovers",
    "OneProcess",
    "run_command",
    "watch_leftovers",
]
