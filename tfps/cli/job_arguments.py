"""The arguments of all commands that take a job: its file, and changes of its keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., None])


def add_job_arguments(command: Command) -> Command:
    """Add the argument CONFIG and the option ``--set`` to a command.

    Args:
        command: takes ``config`` (a path, a shipped job's name or None) and ``overrides`` (each
            ``KEY=VALUE``).
    """
    change = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change a key of the file, for example training.epochs=3. May be given several times.",
    )
    return click.argument("config", required=False)(change(command))
