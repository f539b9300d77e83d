"""`tfps bench NAME`: one command per benchmark."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfps.errors import TfpsError

if TYPE_CHECKING:
    from tfps.bench.throughput import Throughput

MODELS = click.Choice(["mlp", "layers"])
QUICK = click.option(
    "--quick", is_flag=True, help="One short turn each: shows that it works, not how fast."
)
OUTPUT = click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Folder for NAME.json, NAME.png and logs.",
)
REPETITIONS = click.option(
    "--repetitions", type=click.IntRange(min=1), help="Turns of each row. [default: 3]"
)


@click.group()
def bench() -> None:
    """Measure, and compare with TensorFlow's own strategy."""


@bench.command()
@QUICK
@OUTPUT
@REPETITIONS
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

    Trains a Fashion-MNIST classifier and a model of 60 variables in six ways, which take turns on
    one cluster: about 20 minutes on two cores, a few with --quick. Two workers with 60 variables
    are measured only where both options ask for them.
    """
    from rich.console import Console

    from tfps.bench.throughput import Throughput, run
    from tfps.bench.throughput_plot import write_plot
    from tfps.bench.throughput_table import tables

    settings = Throughput()
    settings = settings.quick() if quick else settings
    settings = _adjusted(settings, repetitions, epoch_seconds)
    settings = _selected(settings, models, workers)
    console = Console()
    results = _followed(run, settings, console=console, output=output)
    console.print(tables(results))
    report = results.report(settings.as_json()).write(output)
    picture = write_plot(results, output / "throughput.png")
    console.print(f"Written: {report}, {picture}")


@bench.command()
@QUICK
@OUTPUT
@REPETITIONS
def transport(*, quick: bool, output: Path, repetitions: int | None) -> None:
    """Time and CPU of one exchange with a parameter server, by carrier, from 4 KB to 64 MB.

    Says too what a server's books and its optimizer add to an exchange: about 5 minutes on two
    cores. With the `openssl` command there are rows for encrypted connections.
    """
    from rich.console import Console

    from tfps.bench.transport import Transport, run
    from tfps.bench.transport_plot import write_plot
    from tfps.bench.transport_table import tables

    settings = Transport().quick() if quick else Transport()
    settings = settings if repetitions is None else replace(settings, repetitions=repetitions)
    console = Console()
    results = _followed(run, settings, console=console, output=output)
    console.print(tables(results))
    report = results.report(settings.as_json()).write(output)
    picture = write_plot(results, output / "transport.png")
    console.print(f"Written: {report}, {picture}")


@bench.command()
@QUICK
@OUTPUT
@REPETITIONS
@click.option("--workers", type=click.IntRange(min=2), help="How many. [default: 16]")
def scaling(*, quick: bool, output: Path, repetitions: int | None, workers: int | None) -> None:
    """What many workers keep of one worker's rate, and the servers' CPU per push.

    A step sleeps 50 ms, so workers of one machine do not fight for its cores: about 6 minutes on
    two cores, with 21 processes of half a GB.
    """
    from rich.console import Console

    from tfps.bench.scaling import Scaling, run
    from tfps.bench.scaling_plot import write_plot
    from tfps.bench.scaling_table import tables

    settings = Scaling().quick() if quick else Scaling()
    settings = settings if repetitions is None else replace(settings, repetitions=repetitions)
    settings = settings if workers is None else replace(settings, workers=workers)
    console = Console()
    results = _followed(run, settings, console=console, output=output)
    console.print(tables(results))
    report = results.report(settings.as_json()).write(output)
    picture = write_plot(results, output / "scaling.png")
    console.print(f"Written: {report}, {picture}")


def _followed(run: Any, settings: Any, *, console: Any, output: Path) -> Any:
    """Run a benchmark and name each turn when it starts."""
    turns = iter(range(1, settings.turns + 1))
    started = time.monotonic()

    def progress(turn: str) -> None:
        minutes = (time.monotonic() - started) / 60
        console.print(
            f"{minutes:5.1f} min  turn {next(turns)} of {settings.turns}  {turn}",
            highlight=False,
            soft_wrap=True,
        )

    try:
        return run(settings, progress=progress, log_dir=output / "logs")
    except TfpsError as error:
        raise click.ClickException(str(error)) from error


def _adjusted(settings: Throughput, repetitions: int | None, epoch_s: float | None) -> Throughput:
    if repetitions is not None:
        settings = replace(settings, repetitions=repetitions)
    return settings if epoch_s is None else replace(settings, epoch_s=epoch_s)


def _selected(
    settings: Throughput, models: tuple[str, ...], workers: tuple[int, ...]
) -> Throughput:
    from tfps.bench.throughput_shapes import SHAPES

    wanted = [
        shape
        for shape in SHAPES
        if (not models or shape.model in models) and (not workers or shape.workers in workers)
    ]
    # Shapes without an aim only where both options name them.
    shapes = [shape for shape in wanted if shape in settings.shapes or (models and workers)]
    return replace(settings, shapes=shapes)
