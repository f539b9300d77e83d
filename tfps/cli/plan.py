"""`tfps plan`: shows which parameter server takes which variable, before anything starts."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfps.cli.job_arguments import add_job_arguments
from tfps.units import format_bytes

if TYPE_CHECKING:
    from tfps.job.plan import JobPlan
    from tfps.placement.advice import MemoryLimits, StrategySizes
    from tfps.placement.job_sizes import JobSizes


GIB = 1 << 30


def _refuse_infinity(
    context: click.Context, option: click.Parameter, value: float | None
) -> float | None:
    """Refuse infinity and NaN, which click takes for numbers above 0."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"received {value}, expected a finite number.", context, option)
    return value


def _positive_option(flag: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    kind = click.FloatRange(min=0, min_open=True)
    return click.option(flag, type=kind, callback=_refuse_infinity, help=text)


@click.command()
@add_job_arguments
@_positive_option(
    "--ps-memory-gib", "Memory of each parameter server: say which ones would run out of it."
)
@click.option("--compare", is_flag=True, help="Say which strategy to train the job with, and why.")
@_positive_option("--worker-memory-gib", "With --compare: memory of each task that computes.")
@_positive_option("--step-ms", "With --compare: how long one process computes for a step.")
def plan(
    config: str | None,
    overrides: tuple[str, ...],
    *,
    ps_memory_gib: float | None,
    compare: bool,
    worker_memory_gib: float | None,
    step_ms: float | None,
) -> None:
    """Show which parameter server takes which variable or shard of the job of CONFIG.

    Nothing is started, and no variable gets a value: a model may be larger than this machine.
    Slots: what the optimizer keeps beside a variable. Per step: what one worker moves,
    parameters there and gradients back; of large tables the rows of a batch. Memory: what a
    server's process needs at least. The exit status is 1 if the job has mistakes or a server would
    run out of memory.

    With --compare: the strategies that could train it, the memory of the largest task and of the
    fullest server, what a step moves to and from the busiest worker, and which one to take. The
    exit status is 1 if none fits.
    """
    from rich.console import Console

    from tfps.job.plan import plan_job
    from tfps.launch.noise import install_noise_filter
    from tfps.placement.advice import MemoryLimits, advise

    if not compare and (worker_memory_gib, step_ms) != (None, None):
        raise click.UsageError(
            "--worker-memory-gib, --step-ms: received without --compare; add --compare, or "
            "remove them."
        )
    install_noise_filter(Path(os.devnull))
    job_plan = plan_job(config, overrides)
    console = Console(highlight=False)
    if compare:
        limits = MemoryLimits(*(gib and gib * GIB for gib in (worker_memory_gib, ps_memory_gib)))
        console.print(_strategies_table(job_plan.sizes, limits=limits))
        advice = advise(job_plan.sizes, limits=limits, step_ms=step_ms)
        if advice.strategy is None:
            raise click.ClickException(advice.why)
        console.print(f"Take {advice.strategy.title}: {advice.why}.")
        return
    console.print(_variables_table(job_plan), _servers_table(job_plan), sep="\n\n")
    if job_plan.checkpoint_bytes:
        console.print(f"checkpoints: up to 3 of {format_bytes(job_plan.checkpoint_bytes)} on disk")
    console.print(_imbalance_text(job_plan))
    for section, rule in job_plan.unused_rules():
        console.print(f"{section}.rules: received {rule!r}, which matches no variable.")
    problems = (
        [] if ps_memory_gib is None else job_plan.memory_problems(ps_memory_gib=ps_memory_gib)
    )
    if problems:
        raise click.ClickException("\n".join(problems))


def _variables_table(job_plan: JobPlan) -> Any:
    table = _make_table("variable", "shape", "ps", "value", "+ slots", "per step")
    forecast = job_plan.forecast
    rows = zip(forecast.variables, forecast.server_of_variable, forecast.slot_bytes(), strict=True)
    for variable, server, slot_bytes in rows:
        if variable.owner is None:
            table.add_row(
                variable.path,
                "x".join(map(str, variable.shape)) or "scalar",
                f"{server} + workers" if variable.is_mirrored else str(server),
                format_bytes(variable.size_bytes),
                format_bytes(variable.size_bytes + slot_bytes),
                format_bytes(variable.step_bytes) if variable.step_bytes else "",
            )
    return table


def _servers_table(job_plan: JobPlan) -> Any:
    table = _make_table("ps", "variables", "+ slots", "per step", "memory at least")
    forecast = job_plan.forecast
    pairs = zip(forecast.variables, forecast.server_of_variable, strict=True)
    homes = [server for variable, server in pairs if variable.owner is None]
    rows = zip(
        map(homes.count, range(forecast.server_count)),
        forecast.bytes_per_server,
        forecast.step_bytes_per_server,
        job_plan.memory_bytes_per_server,
        strict=True,
    )
    for server, (count, held, moved, needed) in enumerate(rows):
        sizes = [format_bytes(size) for size in (held, moved, needed)]
        table.add_row(str(server), str(count), *sizes)
    return table


def _imbalance_text(job_plan: JobPlan) -> str:
    from tfps.placement.forecast import imbalance

    held = imbalance(job_plan.forecast.bytes_per_server)
    moved = imbalance(job_plan.forecast.step_bytes_per_server)
    text = f"imbalance (largest / mean): bytes {held:.2f}, traffic {moved:.2f}"
    mirrored_bytes = job_plan.forecast.mirrored_bytes
    if mirrored_bytes:
        text += (
            f"\ntrained by all-reduce, on each worker: {format_bytes(mirrored_bytes)} with slots"
        )
    return text


def _make_table(first: str, *columns: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _strategies_table(sizes: JobSizes, *, limits: MemoryLimits) -> Any:
    """Return a table of each strategy's memory and traffic, and of what does not fit."""
    from rich.table import Table

    from tfps.placement.advice import sizes_of_strategies

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("strategy", no_wrap=True)
    for column in ("task", "server", "per step", "fits"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("needs", no_wrap=True)
    for needed in sizes_of_strategies(sizes):
        table.add_row(*_format_cells(needed, limits))
    return table


def _format_cells(needed: StrategySizes, limits: MemoryLimits) -> list[str]:
    from tfps.placement.advice import MemoryLimits

    title = needed.strategy.title
    # Not known where no memory is given.
    text_if_fits = "" if limits == MemoryLimits() else "yes"
    fits = text_if_fits if needed.fits(limits) else "no"
    if needed.obstacle:
        return [title, "", "", "", fits, needed.obstacle]
    server = "" if needed.server_bytes is None else format_bytes(needed.server_bytes)
    amounts = [format_bytes(needed.task_bytes), server, format_bytes(needed.step_bytes)]
    return [title, *amounts, fits, needed.strategy.needs]
