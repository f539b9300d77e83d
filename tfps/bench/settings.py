"""Settings of a benchmark that are options of its command, too."""

from __future__ import annotations

from dataclasses import field
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

    Empty texts: it is called as the field, and nothing is said of the default.
    """
    if default_text is None:
        several = default if isinstance(default, tuple) else (default,)
        default_text = ", ".join(map(str, several))
    suffix = f" [default: {default_text}]" if default_text else ""
    choice = {"type": kind, "help": text + suffix, "multiple": isinstance(default, tuple)}
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
