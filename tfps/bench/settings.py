"""Settings of a benchmark that are options of its command, too."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click


def option(
    default: Any,
    kind: click.ParamType,
    text: str,
    *,
    flag: str = "",
    default_text: str | None = None,
) -> Any:
    """Make a field of settings that is an option too; of a tuple one that may be repeated.

    Args:
        default: of the field.
        kind: what click makes of a word.
        text: what `--help` says, without the default.
        flag: how it is called; empty: as the field.
        default_text: in brackets behind the text; empty: nothing, None: the default itself.
    """
    if default_text is None:
        several = default if isinstance(default, tuple) else (default,)
        default_text = ", ".join(map(str, several))
    suffix = f" [default: {default_text}]" if default_text else ""
    choice = Option(kind, text + suffix, flag, is_repeated=isinstance(default, tuple))
    return field(default=default, metadata={"option": choice})


@dataclass(frozen=True)
class Option:
    """How a field of settings is given on the command line.

    Args:
        kind: what click makes of a word.
        text: what `--help` says.
        flag: how it is called; empty: as the field.
        is_repeated: it may be given several times.
    """

    kind: click.ParamType
    text: str
    flag: str = ""
    is_repeated: bool = False


REPETITIONS = {
    "option": Option(
        click.IntRange(min=1),
        "Turns of each row; of accuracies the seeds. [default: 3; of accuracies 5]",
    )
}
# Of the field of benchmarks that look at accuracy.
IMAGES = {
    "option": Option(
        click.Path(exists=True, file_okay=False, path_type=Path),
        "Folder with the four files of the full Fashion-MNIST. [default: the shipped subset]",
    )
}
