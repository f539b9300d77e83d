"""`tfps serve`, by which the other commands start workers and parameter servers."""

from __future__ import annotations

import os
import sys

import click

from tfps.errors import ClusterError, ConfigError


@click.command(hidden=True)
def serve() -> None:
    """Serve as the worker or the parameter server that TF_CONFIG names, until the job ends."""
    from tfps.launch.parent import end_with_parent
    from tfps.launch.serving import serve as serve_task

    end_with_parent()
    try:
        status = serve_task()
    except (ConfigError, ClusterError) as error:
        raise click.ClickException(str(error)) from error
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # TensorFlow's server has no end of its own
