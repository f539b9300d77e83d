"""`tfps scheduler`: tells tasks that know one address where the others are."""

from __future__ import annotations

import sys

import click

EXAMPLES = """\b
Examples:
  tfps scheduler --listen 0.0.0.0:7000 --workers 2 --ps 1
"""


@click.command(epilog=EXAMPLES)
@click.option("--listen", metavar="HOST:PORT", required=True, help="Address to listen at.")
@click.option("--workers", type=click.IntRange(min=1), required=True, help="Workers of the job.")
@click.option("--ps", type=click.IntRange(min=1), required=True, help="Its parameter servers.")
def scheduler(*, listen: str, workers: int, ps: int) -> None:
    """Give each task of a job its place, and tell all tasks the addresses once all have come.

    The tasks are started with --scheduler HOST:PORT, or TFPS_SCHEDULER. It starts no task, and
    training goes on without it. GET /cluster at its port shows the places, GET /healthz that it
    runs. It serves one job, and the exit status is that of the job's tasks: 0 after a script that
    ended well, 1 after one that failed, and 75 when the chief stayed away.
    """
    from tfps.launch.scheduling import run_scheduler

    sys.exit(run_scheduler(listen, workers=workers, servers=ps))
