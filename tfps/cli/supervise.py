"""`tfps supervise`: runs one task of a real cluster, and starts it again after a crash."""

from __future__ import annotations

import sys
from pathlib import Path

import click

EXAMPLES = """\b
Examples:
  tfps supervise -- tfps serve
  tfps supervise --restarts 10 --events events.jsonl -- tfps run train.py
"""


@click.command(epilog=EXAMPLES, context_settings={"allow_interspersed_args": False})
@click.option(
    "--restarts",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Restarts of the command.",
)
@click.option(
    "--events",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that gets a record of each event.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def supervise(restarts: int, events: Path | None, command: tuple[str, ...]) -> None:
    """Run COMMAND, one task of a cluster, and start it again when it crashes.

    It rests before, each time twice as long: 0.25 s, 0.5 s, at most 30 s. After a crash (SIGKILL,
    SIGSEGV, ...) and after status 75 it is started again; after its end in order, an error or
    Ctrl-C it is not. The exit status is the command's last one, or 128 + n after signal n before
    another start.
    """
    from tfps.folder import make_folder
    from tfps.launch.lone_task import supervise_command
    from tfps.recovery.fault_tolerance import FaultTolerance

    if events is not None:
        make_folder(events.parent, name="--events")
    fault_tolerance = FaultTolerance(restart_budget=restarts)
    sys.exit(supervise_command(command, fault_tolerance=fault_tolerance, events=events))
