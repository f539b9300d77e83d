"""`tfps run`: runs a script on a parameter-server cluster, as `torchrun` does without servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tfps.cli.scheduler_options import add_scheduler_options

EXAMPLES = """\b
Examples:
  tfps run train.py --epochs 3
  tfps run --workers 4 --ps 2 train.py
  tfps run --scheduler 10.0.0.1:7000 --role chief train.py
"""


# What follows the script is the script's; before it an unknown option is a mistake.
@click.command(epilog=EXAMPLES, context_settings={"allow_interspersed_args": False})
@click.option("--workers", type=click.IntRange(min=1), help="Workers of a local cluster.  [2]")
@click.option("--ps", type=click.IntRange(min=1), help="Parameter servers of a local cluster.  [1]")
@click.option(
    "--restarts", type=click.IntRange(min=0), help="Restarts of each task of a local cluster.  [3]"
)
@click.option(
    "--min-workers",
    type=click.IntRange(min=1),
    help="The script ends with fewer workers than this.  [1]",
)
@click.option(
    "--log-dir",
    type=click.Path(file_okay=False),
    help="Folder for one log per task.  [a new temporary folder]",
)
@add_scheduler_options
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
def run(
    *,
    workers: int | None,
    ps: int | None,
    restarts: int | None,
    min_workers: int | None,
    log_dir: str | None,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT with its ARGS on a parameter-server cluster.

    With TF_CONFIG set, this process plays that task's role: a worker and a ps serve until the
    chief has finished, the chief and the evaluator run SCRIPT. With --scheduler it plays --role;
    without a role it serves. Without both, a cluster of processes is started on this machine and
    SCRIPT runs as its chief; a worker that dies is started again.
    The exit status is the script's, or 1 if too few workers are left.
    Options of tfps come before SCRIPT; what follows it is SCRIPT's own.
    """
    from tfps.folder import make_folder
    from tfps.launch.exit import end_process
    from tfps.launch.run import run as run_task
    from tfps.recovery.fault_tolerance import FaultTolerance

    try:
        if log_dir is not None:
            log_dir = str(make_folder(Path(log_dir), name="--log-dir").resolve())
        given = {"restart_budget": restarts, "min_workers": min_workers}
        chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        status = run_task(
            script,
            arguments,
            workers=workers,
            ps=ps,
            log_dir=log_dir,
            fault_tolerance=FaultTolerance(**chosen) if chosen else None,
        )
    except KeyboardInterrupt:
        status = 130
    end_process(status)
