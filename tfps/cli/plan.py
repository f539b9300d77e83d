"""`tfps plan`: which parameter server takes what, before anything starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfps.cli.job_arguments import job_arguments
from tfps.errors import ConfigError
from tfps.units import format_bytes

if TYPE_CHECKING:
    from tfps.job.plan import JobPlan


@click.command()
@job_arguments
@click.option(
    "--ps-memory-gib",
    type=click.FloatRange(min=0, min_open=True),
    help="Memory of each parameter server: say which ones would run out of it.",
)
def plan(config: str | None, overrides: tuple[str, ...], ps_memory_gib: float | None) -> None:
    """Show which parameter server takes which variable or shard of the job of CONFIG.

    Nothing is started, and no variable gets a value: a model may be larger than this machine.
    Slots: what the optimizer keeps beside a variable. Per step: what one worker moves,
    parameters there and gradients back. Memory: what a server's process needs at least. The
    exit status is 1 if the job has mistakes or a server would run out of memory.
    """
    from rich.console import Console

    from tfps.job.plan import plan_job
    from tfps.launch.noise import install_noise_filter

    install_noise_filter(Path(os.devnull))
    try:
        made = plan_job(config, overrides)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    console = Console(highlight=False)
    console.print(_variables(made), _servers(made), sep="\n\n")
    console.print(_imbalance(made))
    for section, rule in made.unused_rules():
        console.print(f"{section}.rules: no variable has {rule!r} in its path.")
    problems = [] if ps_memory_gib is None else made.memory_problems(ps_memory_gib=ps_memory_gib)
    if problems:
        raise click.ClickException("\n".join(problems))


def _variables(made: JobPlan) -> Any:
    table = _table("variable", "shape", "ps", "value", "+ slots", "per step")
    forecast = made.forecast
    rows = zip(forecast.wanted, forecast.places, forecast.beside(), strict=True)
    for variable, server, beside in rows:
        if variable.beside is None:
            table.add_row(
                variable.path,
                "x".join(map(str, variable.shape)) or "scalar",
                str(server),
                format_bytes(variable.size_bytes),
                format_bytes(variable.size_bytes + beside),
                format_bytes(variable.step_bytes) if variable.step_bytes else "",
            )
    return table


def _servers(made: JobPlan) -> Any:
    table = _table("ps", "variables", "+ slots", "per step", "memory at least")
    forecast = made.forecast
    pairs = zip(forecast.wanted, forecast.places, strict=True)
    homes = [server for variable, server in pairs if variable.beside is None]
    rows = zip(
        map(homes.count, range(forecast.servers)),
        forecast.bytes_per_server,
        forecast.step_bytes_per_server,
        made.memory_bytes_per_server,
        strict=True,
    )
    for server, (count, held, moved, needed) in enumerate(rows):
        sizes = [format_bytes(size) for size in (held, moved, needed)]
        table.add_row(str(server), str(count), *sizes)
    return table


def _imbalance(made: JobPlan) -> str:
    from tfps.placement.forecast import imbalance

    held = imbalance(made.forecast.bytes_per_server)
    moved = imbalance(made.forecast.step_bytes_per_server)
    return f"imbalance (largest / mean): bytes {held:.2f}, traffic {moved:.2f}"


def _table(first: str, *columns: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table
