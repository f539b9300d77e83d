"""`tfps bench NAME`: one command per benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from tfps.bench.checkpoint import SavingBenchmark
from tfps.bench.rows import Rows
from tfps.bench.runner import Benchmark, run
from tfps.bench.scaling import Scaling
from tfps.bench.transport import Transport
from tfps.errors import TfpsError

MODELS = click.Choice(["mlp", "layers"])


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


@_benchmark
@click.option(
    "--epoch-seconds", type=click.FloatRange(min=0.1), help="Length of an epoch. [default: 1.5]"
)
@click.option("--model", "models", type=MODELS, multiple=True, help="Only this model.")
@click.option("--workers", type=click.IntRange(1, 2), multiple=True, help="Only so many workers.")
def throughput(
    *,
    quick: bool,
    output: Path,
    repetitions: int | None,
    epoch_seconds: float | None,
    models: tuple[str, ...],
    workers: tuple[int, ...],
) -> None:
    """Steps per second and CPU per step, against TensorFlow's strategy and a single process.

    Trains a Fashion-MNIST classifier and a model of 60 variables in seven ways, which take turns
    on one cluster: about half an hour on two cores, a few minutes with --quick.
    """
    from tfps.bench.throughput.benchmark import Throughput, run
    from tfps.bench.throughput.plot import write_plot
    from tfps.bench.throughput.table import tables

    settings = _settings(Throughput(), quick=quick, repetitions=repetitions, epoch_s=epoch_seconds)
    shapes = [
        shape
        for shape in settings.shapes
        if (not models or shape.model in models) and (not workers or shape.workers in workers)
    ]
    results = _followed(run, replace(settings, shapes=shapes), output=output)
    _present(results, settings, tables=tables, write_plot=write_plot, output=output)


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


@_benchmark
@IMAGES
def staleness(*, quick: bool, output: Path, repetitions: int | None, images: Path | None) -> None:
    """Staleness-aware optimizers against plain ones where every gradient lacks 8 to 16 updates.

    13 workers whose steps take 100 ms; each optimizer with the best learning rate of a grid. About
    35 minutes on two cores.
    """
    from tfps.bench.staleness.benchmark import Staleness, run
    from tfps.bench.staleness.plot import write_plot
    from tfps.bench.staleness.table import tables

    settings = _settings(Staleness(), quick=quick, repetitions=repetitions, images=images)
    results = _followed(run, settings, output=output)
    _present(results, settings, tables=tables, write_plot=write_plot, output=output)


@_benchmark
@IMAGES
@click.option(
    "--batch-size",
    "batch_sizes",
    type=click.IntRange(min=1),
    multiple=True,
    help="A worker's batch; may be repeated. [default: 16, 32, 64, 128, 256]",
)
@click.option(
    "--local-steps",
    "periods",
    type=click.IntRange(min=1),
    multiple=True,
    help="Steps between two exchanges; may be repeated. [default: 1, 4, 16]",
)
@click.option(
    "--rule",
    type=click.Choice(["square_root", "linear"]),
    help="How the learning rate follows the batch. [default: square_root]",
)
def batch(
    *,
    quick: bool,
    output: Path,
    repetitions: int | None,
    images: Path | None,
    batch_sizes: tuple[int, ...],
    periods: tuple[int, ...],
    rule: str | None,
) -> None:
    """Which batch per worker and how many local steps: speed, memory, time to an accuracy.

    Trains a Fashion-MNIST classifier on two workers with each pair, and says which one to take:
    about a quarter of an hour on two cores.
    """
    from tfps.bench.batch.benchmark import Batch, run
    from tfps.bench.batch.plot import write_plot
    from tfps.bench.batch.table import tables

    settings = _settings(
        Batch(),
        quick=quick,
        repetitions=repetitions,
        images=images,
        batch_sizes=sorted(set(batch_sizes)) or None,
        periods=sorted(set(periods)) or None,
    )
    if rule is not None:
        settings = replace(settings, rate=replace(settings.rate, rule=rule))
    results = _followed(run, settings, output=output)
    _present(results, settings, tables=tables, write_plot=write_plot, output=output)


@_benchmark
def placement(*, quick: bool, output: Path, repetitions: int | None) -> None:
    """How evenly servers are filled, for four models and up to 64 servers; nothing is started.

    Bytes and traffic of the fullest server over the mean, against TensorFlow's round-robin, and the
    seconds that a plan takes: half a minute.
    """
    from tfps.bench.placement.benchmark import Placing, run
    from tfps.bench.placement.plot import write_plot
    from tfps.bench.placement.table import tables
    from tfps.launch.noise import install_noise_filter

    # Models are made in this process.
    (output / "logs").mkdir(parents=True, exist_ok=True)
    install_noise_filter(output / "logs" / "placement.log")
    settings = _settings(Placing(), quick=quick, repetitions=repetitions)
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


for _kind in (Rows, SavingBenchmark, Scaling, Transport):
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
