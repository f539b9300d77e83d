"""`tfps serve`: a worker or a parameter server, on a real machine or started by other commands."""

from __future__ import annotations

import os
import sys

import click

from tfps.cli.scheduler_options import add_scheduler_options


@click.command()
@add_scheduler_options
def serve() -> None:
    """Serve as the worker or the parameter server that TF_CONFIG names, until the job ends.

    With --scheduler it becomes what --role says, or a missing server, or else a missing worker.
    It needs no training script, and does what `tfps run` does as such a task. The exit status is 0
    after a script that ended well, 1 after one that failed, and 75 when the chief stayed away.
    """
    from tfps.launch.parent import end_with_parent
    from tfps.launch.serving import serve as serve_task

    end_with_parent()
    status = serve_task()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # TensorFlow's server has no end of its own
