"""`tfps train`: trains the job of one configuration file."""

from __future__ import annotations

import click

from tfps.cli.job_arguments import add_job_arguments
from tfps.cli.scheduler_options import add_scheduler_options
from tfps.errors import TfpsError

EXAMPLES = """\b
Examples:
  tfps train
  tfps train --set model.name=mlp --set training.epochs=3
  tfps train my_job.toml --set cluster.workers=4
  tfps train --overwrite
"""


@click.command(epilog=EXAMPLES)
@add_scheduler_options
@click.option("--resume", is_flag=True, help="Fail without an unfinished run.")
@click.option("--overwrite", is_flag=True, help="Begin anew in any case.")
@add_job_arguments
def train(config: str | None, overrides: tuple[str, ...], *, resume: bool, overwrite: bool) -> None:
    """Train the job that CONFIG describes: a TOML file, or the name of a shipped one.

    Without CONFIG it is the reference job, Fashion-MNIST. With TF_CONFIG set, this process plays
    that task's role, with --scheduler that of --role, or it serves without one. Without both, a
    cluster of processes is started on this machine.

    A run that was stopped, by whatever means, goes on with the same command.
    """
    from tfps.job.train import train as train_job
    from tfps.launch.exit import end_process

    if resume and overwrite:
        raise click.UsageError("--resume, --overwrite: received both; leave one of them out")
    starts = [name for name, is_given in (("resume", resume), ("overwrite", overwrite)) if is_given]
    try:
        status = train_job(config, (*overrides, *(f"recovery.start={name}" for name in starts)))
    except TfpsError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        status = 130
    end_process(status)
