"""`tfps bench NAME`: one command per benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from tfps.bench.batch import Batch
from tfps.bench.checkpoint import SavingBenchmark
from tfps.bench.placement import Placing
from tfps.bench.rows import Rows
from tfps.bench.runner import Benchmark, run
from tfps.bench.scaling import Scaling
from tfps.bench.staleness import Staleness
from tfps.bench.throughput import Throughput
from tfps.bench.transport import Transport
from tfps.errors import TfpsError


def _benchmark(command: Callable[..., None]) -> click.Command:
    """A command of the group, with the options that all benchmarks have."""
    options = (
        click.option(
            "--quick", is_flag=True, help="One short turn each: shows that it works, not how fast."
        ),
        click.option(
            "--output",
            type=click.Path(file_okay=False, path_type=Path),
            default=Path("results"),
            show_default=True,
            help="Folder for NAME.json, NAME.png and logs.",
        ),
        click.option(
            "--repetitions",
            type=click.IntRange(min=1),
            help="Turns of each row; of accuracies the seeds. [default: 3; of accuracies 5]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return bench.command()(command)


@click.group()
def bench() -> None:
    """Measure, and compare with TensorFlow's own strategy."""


IMAGES = click.option(
    "--images",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with the four files of the full Fashion-MNIST. [default: the shipped subset]",
)


@_benchmark
@IMAGES
def consistency(*, quick: bool, output: Path, repetitions: int | None, images: Path | None) -> None:
    """The consistency modes with a worker that is slow, and with workers slow at times.

    Steps wait 50 ms, so workers of one machine do not fight for its cores. Updates per second,
    staleness, and the time to a test accuracy of 0.85; what local steps save in bytes and cost in
    accuracy: half an hour on two cores.
    """
    from tfps.bench.consistency.benchmark import Consistency, run
    from tfps.bench.consistency.plot import write_plot
    from tfps.bench.consistency.table import tables

    settings = _settings(Consistency(), quick=quick, repetitions=repetitions, images=images)
    results = _followed(run, settings, output=output)
    _present(results, settings, tables=tables, write_plot=write_plot, output=output)


def command_of(kind: type[Benchmark]) -> click.Command:
    """Make the command of a benchmark: each of its fields that is an option is one."""

    def call(*, quick: bool, output: Path, **given: Any) -> None:
        # A tuple is an option that may be repeated.
        named = {
            name: tuple(sorted(set(value))) if isinstance(value, tuple) else value
            for name, value in given.items()
        }
        settings = _settings(kind(), quick=quick, **{k: v for k, v in named.items() if v != ()})
        results = _followed(run, settings, output=output)
        report = settings.report(results).write(output)
        picture = output / f"{report.stem}.png"
        settings.draw(results, picture)
        console = Console()
        console.print(settings.present(results))
        console.print(f"Written: {report}, {picture}")

    options = [
        click.option(
            choice.flag or f"--{field.name}",
            field.name,
            type=choice.kind,
            multiple=choice.is_repeated,
            help=choice.text,
        )
        for field in fields(kind)
        for choice in (field.metadata.get("option"),)
        if choice is not None
    ]
    for option in reversed(options):
        call = option(call)
    call.__name__, call.__doc__ = kind.name, kind.help()
    return _benchmark(call)


for _kind in (Batch, Placing, Rows, SavingBenchmark, Scaling, Staleness, Throughput, Transport):
    command_of(_kind)


def _settings(default: Any, *, quick: bool, **given: object) -> Any:
    """A benchmark's settings with what was given on the command line."""
    named = {name: value for name, value in given.items() if value is not None}
    return replace(default.quick() if quick else default, **named)


def _followed(run: Callable[..., Any], settings: Any, *, output: Path) -> Any:
    """Run a benchmark and name each turn when it starts."""
    turns = iter(range(1, settings.turns + 1))
    started = time.monotonic()

    def progress(turn: str) -> None:
        minutes = (time.monotonic() - started) / 60
        click.echo(f"{minutes:5.1f} min  turn {next(turns)} of {settings.turns}  {turn}")

    try:
        return run(settings, progress=progress, log_dir=output / "logs")
    except TfpsError as error:
        raise click.ClickException(str(error)) from error


def _present(
    results: Any,
    settings: Any,
    *,
    tables: Callable[[Any], Any],
    write_plot: Callable[[Any, Path], Path],
    output: Path,
) -> None:
    """Print the tables, write the report and the picture, and say where."""
    report = results.report(settings.as_json()).write(output)
    picture = write_plot(results, output / f"{report.stem}.png")
    console = Console()
    console.print(tables(results))
    console.print(f"Written: {report}, {picture}")
