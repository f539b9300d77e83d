"""Files of made-up clicks, in every format that the recommender reads."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import tensorflow as tf


def rows(count: int) -> list[list[str]]:
    """Lines of Criteo's form: a label, 13 numbers and 26 texts, some of them missing."""
    random = np.random.default_rng(0)
    numbers = random.integers(-2, 5000, (count, 13))
    texts = random.integers(0, 1 << 32, (count, 26))
    missing = random.random((count, 39)) < 0.2
    values = [
        [*map(str, n), *(f"{t:08x}" for t in ts)] for n, ts in zip(numbers, texts, strict=True)
    ]
    for line, holes in zip(values, missing, strict=True):
        for position in np.flatnonzero(holes):
            line[position] = ""
    # The label follows from the line's number, so that each line can be told from the others.
    return [[str(number % 3 % 2), *line] for number, line in enumerate(values)]


def write_criteo(path: Path, lines: list[list[str]]) -> Path:
    content = "".join("\t".join(line) + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def record(line: list[str], columns: Any) -> tf.train.Example:
    features = {}
    for name, value in zip(columns.COLUMNS, line, strict=True):
        if value and name in columns.CATEGORY_NAMES:
            features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))
        elif value:
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(value)]))
    return tf.train.Example(features=tf.train.Features(feature=features))


def write_tfrecord(path: Path, lines: list[list[str]], columns: Any) -> Path:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for line in lines:
            writer.write(record(line, columns).SerializeToString())
    return path


def write_parquet(path: Path, lines: list[list[str]], columns: Any) -> Path:
    def column(position: int, name: str) -> list[Any]:
        is_text = name in columns.CATEGORY_NAMES
        return [(t if is_text else int(t)) if (t := line[position]) else None for line in lines]

    table = pyarrow.table({name: column(i, name) for i, name in enumerate(columns.COLUMNS)})
    pyarrow.parquet.write_table(table, path, row_group_size=50)
    return path
