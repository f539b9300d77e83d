"""`tfps top`: shows what the tasks of a job do, while it runs or afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from tfps.errors import ConfigError
from tfps.units import format_bytes, format_seconds

PERIOD_S = 1.0
EXAMPLES = """\b
Examples:
  tfps top runs/night
  tfps top runs/night --once --json
  tfps top --job night --scheduler 10.0.0.7:4000
"""

View = dict[str, Any]


@click.command(epilog=EXAMPLES)
@click.argument("run", required=False, type=click.Path(path_type=Path))
@click.option("--job", help="Name of a job, whose servers TF_CONFIG or --scheduler names.")
@click.option("--scheduler", help="With --job: HOST:PORT of its scheduler.")
@click.option("--once", is_flag=True, help="Show the present state, and exit.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object for each state.")
def top(
    run: Path | None, *, job: str | None, scheduler: str | None, once: bool, as_json: bool
) -> None:
    """Show the tasks of the job that writes its record into the folder RUN.

    Nothing is changed, and the job may have ended. Each second: the count, rate, time, CPU time and
    memory of each task, and the warnings of the last minute. With --job it reads the counters from
    the servers of a job without a record. Where standard output is no terminal, it writes lines.
    """
    from rich.console import Console
    from rich.live import Live

    from tfps.observe.job_view import view_job

    if (run is None) == (job is None):
        raise click.UsageError("received RUN and --job, or neither; give one of them.")
    is_live = sys.stdout.isatty() and not (once or as_json)
    live = Live(auto_refresh=False) if is_live else contextlib.nullcontext()
    with _open(run, job or "", scheduler) as read, live as screen:
        while True:
            view = view_job(read())
            if as_json:
                click.echo(json.dumps(view))
            elif screen is not None:
                screen.update(_table(view), refresh=True)
            elif once:
                Console(highlight=False).print(_table(view))
            else:
                click.echo(_line(view))
            if once:
                return
            time.sleep(PERIOD_S)


@contextlib.contextmanager
def _open(run: Path | None, job: str, scheduler: str | None) -> Iterator[Callable[[], list[View]]]:
    """Open a run or a job; the value returns its newest lines."""
    if run is not None:
        from tfps.observe.record_file import read_newest_lines

        yield lambda: read_newest_lines(run)
        return
    import tensorflow as tf

    from tfps.strategy.reading.attach import attach

    def take() -> View:
        stats = {**dataclasses.asdict(attachment.stats()), "tasks": {}, "transports": []}
        return {"time_s": time.time(), "began_s": 0.0, "usage": {}, "stats": stats}

    def read() -> list[View]:
        before = take()
        time.sleep(PERIOD_S)  # for rates
        return [before, take()]

    with attach(job, scheduler=scheduler) as attachment:
        try:
            yield read
        except tf.errors.UnavailableError as error:
            raise ConfigError(f"--job: {error.message}") from error


def _table(view: View) -> Any:
    from rich import box
    from rich.console import Group
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("task", "state", "count", "per second", "traffic", "time", "CPU", "memory"):
        table.add_column(name, justify="left" if name in ("task", "state") else "right")
    for each in view["tasks"]:
        cells = (
            ("count", "{:,}".format),
            ("per_s", "{:.1f}".format),
            ("bytes_per_s", lambda number: f"{format_bytes(round(number))}/s"),
            ("took_s", format_seconds),
            ("cpu", "{:.0%}".format),
            ("memory_bytes", format_bytes),
        )
        texts = ["" if each[name] is None else text(each[name]) for name, text in cells]
        table.add_row(each["task"], each["state"] or "", *texts)
    return Group(_line({**view, "warnings": []}), table, *view["warnings"])


def _line(view: View) -> str:
    """Return one line about the whole job."""
    steps = [each["per_s"] for each in view["tasks"] if each["task"].startswith("worker")]
    known = [each for each in steps if each is not None]
    parts = [time.strftime("%H:%M:%S", time.localtime(view["time_s"]))]
    parts += [f"{sum(known):.1f} steps/s"] if known else []
    parts += [f"loss {float(view['loss']):.4g}"] if view["loss"] is not None else []
    parts += [f"{task} is {state}" for task, state in view["states"].items() if state != "alive"]
    return " - ".join([*parts, *(f"warning: {text}" for text in view["warnings"])])
