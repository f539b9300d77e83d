"""Settings of a benchmark that are options of its command, too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from pathlib import Path
from typing import Any

import click

AT_LEAST_ONE = click.IntRange(min=1)


def option(default: Any, text: str, kind: click.ParamType = AT_LEAST_ONE, *, flag: str = "") -> Any:
    """Make a field of settings that is an option too; of a tuple one that may be repeated.

    Without a flag it is called as the field.
    """
    several = default if isinstance(default, tuple) else (default,)
    whole = f"{text} [default: {', '.join(map(str, several))}]"
    return _field(default, type=kind, help=whole, flag=flag)


def choices(names: Iterable[Any], text: str, *, flag: str = "") -> Any:
    """Make a field that is some of all there is; its option may be repeated."""
    every = tuple(names)
    numbers = [each for each in every if isinstance(each, int)]
    kind = click.IntRange(min(numbers), max(numbers)) if numbers else click.Choice(every)
    return _field(every, type=kind, help=text, flag=flag)


def _field(default: Any, *, flag: str, **choice: Any) -> Any:
    choice["multiple"] = isinstance(default, tuple)
    return field(default=default, metadata={"option": choice, "flag": flag})


REPETITIONS = {
    "option": {
        "type": click.IntRange(min=1),
        "help": "Turns of each row; of accuracies the seeds. "
        "[default: 3; of accuracies 5, of staleness 10]",
    }
}
# Of the field of benchmarks that look at accuracy; None: the shipped subset.
IMAGES = {
    "option": {
        "type": click.Path(exists=True, file_okay=False, path_type=Path),
        "help": "Folder with the four files of the full Fashion-MNIST. "
        "[default: the shipped subset]",
    }
}
