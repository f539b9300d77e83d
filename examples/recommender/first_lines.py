"""Checks the first lines of files on the chief before the job starts. Imports no TensorFlow."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path

from recommender.settings import CATEGORIES, NUMBERS

COLUMNS = 1 + NUMBERS + CATEGORIES
LEAST_RECORD_BYTES = 16  # of a TFRecord file: two sums and a length around each record


def first_problems(file: str, kind: str) -> list[str]:
    """Say why the first example of a file cannot be read; workers look at the others.

    Args:
        file: its name.
        kind: ``criteo``, ``tfrecord`` or ``parquet``.
    """
    try:
        if kind == "parquet":
            return _parquet_problems(file)
        first = _begin(file, whole_line=kind == "criteo")
    except (OSError, EOFError, zlib.error, ModuleNotFoundError) as error:
        text = str(error)
        return [text if file in text else f"{file}: cannot read the file: {text}"]
    if kind == "tfrecord":
        few = len(first) < LEAST_RECORD_BYTES
        return [f"{file}: received {len(first)} bytes, expected a TFRecord file"] if few else []
    return _line_problems(file, first.decode(errors="replace"))


def _begin(file: str, *, whole_line: bool) -> bytes:
    path = Path(file)
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as opened:
        return opened.readline() if whole_line else opened.read(LEAST_RECORD_BYTES)


def _line_problems(file: str, line: str) -> list[str]:
    columns = line.rstrip("\r\n").split("\t")
    if len(columns) != COLUMNS:
        return [
            f"{file}: line 1: received {len(columns)} columns, expected {COLUMNS}: a label, "
            f"{NUMBERS} numbers and {CATEGORIES} texts, separated by tabs"
        ]
    label, numbers = columns[0], columns[1 : 1 + NUMBERS]
    if label not in ("0", "1"):
        return [f"{file}: line 1: label: received {label!r}, expected 0 or 1"]
    return [
        f"{file}: line 1: I{position}: received {text!r}, expected a whole number, or nothing"
        for position, text in enumerate(numbers, start=1)
        if not re.fullmatch(r"(-?\d+)?", text, re.ASCII)
    ]


def _parquet_problems(file: str) -> list[str]:
    from recommender.columns import PARQUET_TYPES
    from tfps.bridge.parquet_rows import find_column_problems

    return find_column_problems(file, PARQUET_TYPES)
