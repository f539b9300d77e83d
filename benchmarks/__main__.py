"""`python -m benchmarks NAME`: a command per benchmark; its options are fields of its settings."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks.batch import Batch
from benchmarks.benchmark import Benchmark
from benchmarks.checkpoint import SavingBenchmark
from benchmarks.consistency import Consistency
from benchmarks.embedding import Embeddings
from benchmarks.journal import TurnJournal
from benchmarks.network import NetworkBenchmark
from benchmarks.operations import operations
from benchmarks.placement import PlacementBenchmark
from benchmarks.recovery import RecoveryBenchmark
from benchmarks.results import Results
from benchmarks.rows import Rows
from benchmarks.runner import run
from benchmarks.scaling import Scaling
from benchmarks.staleness import Staleness
from benchmarks.strategies import Strategies
from benchmarks.throughput import Throughput
from benchmarks.transport import Transport
from tfps.errors import ConfigError, TfpsError
from tfps.folder import make_folder

BENCHMARKS: tuple[type[Benchmark], ...] = (
    Batch,
    Consistency,
    Embeddings,
    NetworkBenchmark,
    PlacementBenchmark,
    RecoveryBenchmark,
    Rows,
    SavingBenchmark,
    Scaling,
    Staleness,
    Strategies,
    Throughput,
    Transport,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure, and compare with TensorFlow's own strategy."""


def command_of(kind: type[Benchmark]) -> click.Command:
    """Make the command of a benchmark: each of its fields that is an option is one."""

    def call(*, quick: bool, resume: bool, output: Path, **given: Any) -> None:
        benchmark = kind().quick() if quick else kind()
        # What is given counts more; a tuple is an option that may be repeated.
        named: dict[str, Any] = {
            name: tuple(sorted(set(value))) if isinstance(value, tuple) else value
            for name, value in given.items()
            if value not in (None, ())
        }
        benchmark = replace(benchmark, **named)
        try:
            make_folder(output, name="--output")
        except ConfigError as error:
            raise click.ClickException(str(error)) from error
        journal = TurnJournal(output / f"{kind.name}.turns.jsonl", is_resumed=resume)
        results = _followed(benchmark, log_dir=output / "logs", journal=journal)
        report = benchmark.write(results, output)
        picture = output / f"{report.stem}.png"
        benchmark.draw(results, picture)
        console = Console()
        console.print(benchmark.present(results))
        if journal.kept:
            console.print(f"{journal.kept} turns were kept from {journal.path}.")
        console.print(f"Written: {report}, {picture}")

    own = [
        click.Option(
            [field.metadata.get("flag") or f"--{field.name}", field.name],
            **field.metadata["option"],
        )
        for field in fields(kind)
        if "option" in field.metadata
    ]
    return click.Command(
        kind.name, callback=call, params=[*_shared_options(), *own], help=kind.help()
    )


def _shared_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--quick"],
            is_flag=True,
            help="One short turn each: shows that it works, not how fast.",
        ),
        click.Option(
            ["--output"],
            type=click.Path(file_okay=False, path_type=Path),
            default=Path("results"),
            show_default=True,
            help="Folder for NAME.json, NAME.png, NAME.turns.jsonl and logs.",
        ),
        click.Option(
            ["--resume"],
            is_flag=True,
            help="Keep turns that --output has of an earlier run with the same settings, machine "
            "and packages: goes on with a run that was stopped, and joins runs of parts.",
        ),
    ]


def _followed(benchmark: Benchmark, *, log_dir: Path, journal: TurnJournal) -> Results:
    """Run a benchmark and name each turn when it starts."""
    started = time.monotonic()

    def progress(number: int, count: int, title: str) -> None:
        minutes = (time.monotonic() - started) / 60
        click.echo(f"{minutes:5.1f} min  turn {number} of {count}  {title}")

    try:
        return run(benchmark, progress=progress, log_dir=log_dir, journal=journal)
    except TfpsError as error:
        raise click.ClickException(str(error)) from error


for _kind in BENCHMARKS:
    main.add_command(command_of(_kind))
main.add_command(operations)

if __name__ == "__main__":
    main()
