"""The options of all commands that can be a task whose cluster a scheduler knows."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping

import click

from tfps.errors import ConfigError
from tfps.scheduler.settings import VARIABLES

OPTIONS = {
    "scheduler": ("HOST:PORT", "Address of `tfps scheduler`, instead of TF_CONFIG."),
    "role": ("ROLE", "With --scheduler: chief, worker, ps or evaluator.  [a missing ps or worker]"),
    "index": ("N", "With --role: the index of the task.  [any free one]"),
    "address": ("HOST[:PORT]", "With --scheduler: where the others reach this task."),
}


def add_scheduler_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--scheduler`` and the options beside it, which set variables of this process.

    Args:
        command: a command, which does not get the options.
    """

    @functools.wraps(command)
    def set_variables(*args: object, **kwargs: object) -> None:
        flags = {}
        for name, variable in zip(OPTIONS, VARIABLES, strict=True):
            value = kwargs.pop(name)
            if value is not None:
                os.environ[variable] = str(value)
                flags[variable] = f"--{name}"
        try:
            command(*args, **kwargs)
        except ConfigError as error:
            problems = [_under_flag(problem, flags) for problem in error.problems]
            if error.source or problems == list(error.problems):
                raise
            raise ConfigError(problems) from error

    for name, (shown, text) in reversed(OPTIONS.items()):
        click.option(f"--{name}", metavar=shown, help=text)(set_variables)
    return set_variables


def _under_flag(problem: str, flags: Mapping[str, str]) -> str:
    variable, colon, text = problem.partition(": ")
    return f"{flags.get(variable, variable)}{colon}{text}"
