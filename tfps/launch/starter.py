"""Starts the tasks of a local cluster: each as a fork, or as a program of its own."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tfps.errors import TaskFailed
from tfps.launch.environment import PARENT_PID
from tfps.launch.fork_server import use_fork_server
from tfps.launch.process import TaskProcess, start_program


class Starter(Protocol):
    """Starts tasks that serve."""

    def start(self, *, name: str, environment: Mapping[str, str], log_path: Path) -> TaskProcess:
        """Start the task that ``TF_CONFIG`` in an environment names."""

    def failures(self) -> list[TaskFailed]:
        """Return the errors that prevent all tasks from starting."""


class ProgramStarter:
    """Starts every task as ``python -m tfps serve``."""

    def start(self, *, name: str, environment: Mapping[str, str], log_path: Path) -> TaskProcess:
        """Start a program."""
        return start_program(
            name=name,
            # -P: a user's file with the name of a module does not replace it.
            command=[sys.executable, "-P", "-m", "tfps", "serve"],
            environment={**environment, PARENT_PID: str(os.getpid())},
            log_path=log_path,
        )

    def failures(self) -> list[TaskFailed]:
        """Return no errors: the programs share nothing that can fail."""
        return []


def make_starter(environment: Mapping[str, str]) -> contextlib.AbstractContextManager[Starter]:
    """Return a context with the starter for this platform.

    Args:
        environment: the environment variables that all tasks have in common.
    """
    # Elsewhere a fork of a process with Apple's frameworks crashes, and nothing ends orphans.
    if platform.system() == "Linux":
        return use_fork_server(environment)
    return contextlib.nullcontext(ProgramStarter())
