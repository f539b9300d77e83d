"""What tests of clusters need: commands with deadlines, and checks that nothing is left behind."""

from tfps.testing.command import Command, run_command
from tfps.testing.leaks import Leftovers, watch_leftovers

__all__ = ["Command", "Leftovers", "run_command", "watch_leftovers"]
