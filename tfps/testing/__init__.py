"""Tools for tests: a cluster in one process, commands with deadlines, and checks for leaks."""

from tfps.testing.command import Command, run_command
from tfps.testing.in_process_cluster import InProcessCluster
from tfps.testing.leaks import ProcessSnapshot, assert_no_leaks

__all__ = [
    "Command",
    "ProcessSnapshot",
    "InProcessCluster",
    "run_command",
    "assert_no_leaks",
]
