"""Tools for tests: a cluster in one process, commands with deadlines, and checks for leftovers."""

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
