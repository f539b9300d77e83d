"""`tfps check`: finds mistakes in a job before anything starts."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tfps.cli.job_arguments import add_job_arguments


@click.command()
@add_job_arguments
def check(config: str | None, overrides: tuple[str, ...]) -> None:
    """Check the job that CONFIG describes without starting anything.

    Prints the effective configuration. Every mistake in the file, the overrides, the data files,
    TF_CONFIG and tfps's environment variables is reported at once, and the exit status is then 1.
    If their values are right, the model is made, without memory for it: what its optimizer and its
    division into shards would be refused for is a mistake as well.
    """
    from tfps.config import to_toml
    from tfps.job.check import check_job
    from tfps.launch.noise import install_noise_filter
    from tfps.scheduler.settings import SCHEDULER

    # An optimizer's arguments are looked up in Keras, whose backend writes lines of its own.
    install_noise_filter(Path(os.devnull))
    checked = check_job(config, overrides)
    click.echo(to_toml(checked.config))
    click.echo(f"# data: {checked.data}")
    if scheduler := os.environ.get(SCHEDULER):
        click.echo(f"# cluster: that of the scheduler at {scheduler}, which is not asked")
    elif checked.spec is None:
        click.echo("# cluster: processes of this machine (TF_CONFIG is not set)")
    else:
        own, size = checked.config.cluster, checked.size
        differs = (own.workers, own.ps) != (size.workers, size.servers)
        note = f" (cluster.workers = {own.workers} and cluster.ps = {own.ps} have no effect)"
        click.echo(f"# cluster of TF_CONFIG{note if differs else ''}:")
        click.echo("\n".join(f"# {line}" for line in str(checked.spec).splitlines()))
    click.echo(f"# {checked.path} has no mistake; tfps check starts nothing.")
