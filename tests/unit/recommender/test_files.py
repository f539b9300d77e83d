"""Clicks in Criteo's files, TFRecord and Parquet give equal examples, and clear errors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tensorflow as tf

from tests.messages import check_message, raises
from tests.unit.recommender.click_files import (
    record,
    rows,
    write_criteo,
    write_parquet,
    write_tfrecord,
)
from tfps.config import parse
from tfps.errors import DataError

LINES = 210
SIZE = 2


@pytest.fixture(scope="module")
def columns(module: Any) -> Any:
    return module("columns")


@pytest.fixture(scope="module")
def inputs_of(module: Any) -> Callable[..., Any]:
    def make(path: Path, **data: Any) -> Any:
        sizes = {"max_table_rows": 1000, "batch_size": SIZE}
        config = parse({"example": "recommender", "data": {"path": str(path), **sizes, **data}})
        return module("file_inputs").file_inputs(config)

    return make


def examples(part: Callable[[Any], Any], pipelines: int) -> list[tuple[Any, ...]]:
    """All of a part: (label, numbers, ids), in the order of the pipelines."""
    found: list[tuple[Any, ...]] = []
    for index in range(pipelines):
        context = tf.distribute.InputContext(pipelines, index, 1)
        for features, labels in part(context).as_numpy_iterator():
            for row, label in enumerate(labels):
                found.append(
                    (
                        float(label),
                        features["numbers"][row].tobytes(),
                        features["ids"][row].tobytes(),
                    )
                )
    return found


@pytest.mark.slow
def test_three_formats_hold_the_same_examples_each_in_one_part(
    inputs_of: Any, columns: Any, module: Any, tmp_path: Path
) -> None:
    lines = rows(LINES)
    files = [
        write_criteo(tmp_path / "a.txt", lines),
        write_criteo(tmp_path / "b.tsv.gz", lines),
        write_tfrecord(tmp_path / "c.tfrecord", lines, columns),
        write_parquet(tmp_path / "d.parquet", lines, columns),
    ]
    seen = []
    for file in files:
        inputs = inputs_of(file, validation_fraction=0.1, test_fraction=0.1)
        assert inputs.steps_per_epoch(SIZE) is None
        parts = [examples(p, 1) for p in (inputs.training, inputs.validation, inputs.test)]
        # Of 105 batches of 2, 80 of the first hundred and the last five are for training.
        assert [len(part) for part in parts] == [170, 20, 20]
        together = list(chain(*parts))
        assert len(set(together)) == LINES
        seen.append([sorted(part) for part in parts])
    assert seen[1:] == seen[:1] * 3
    first = next(x for x in chain(*seen[0]) if x[0] == 1.0)
    numbers = np.frombuffer(first[1], np.float32)
    expected = [np.log1p(max(int(text or 0), 0)) for line in lines for text in line[1:14]]
    assert np.isin(np.round(numbers, 4), np.round(np.array(expected, np.float32), 4)).all()
    assert (
        np.frombuffer(first[2], np.int32) < np.minimum(module("settings").TABLE_ROWS, 1000)
    ).all()


@pytest.mark.slow
@pytest.mark.parametrize("pipelines", [2, 5])
def test_each_example_has_one_pipeline(inputs_of: Any, tmp_path: Path, pipelines: int) -> None:
    lines = rows(LINES)
    for number in range(3):
        write_criteo(tmp_path / f"day_{number}.txt", lines[70 * number : 70 * (number + 1)])
    inputs = inputs_of(tmp_path / "day_*.txt")
    parts = (inputs.training, inputs.validation, inputs.test)
    assert len({one for part in parts for one in examples(part, pipelines)}) == LINES
    assert inputs.shards == 3


@pytest.mark.parametrize(
    ("change", "received", "remedy"),
    [
        (lambda line: line[:-1], "39 columns", "expected 40"),
        (lambda line: [*line[:2], "1.5", *line[3:]], "I2: received '1.5'", "a whole number"),
        (lambda line: ["7", *line[1:]], "label: received '7'", "0 or 1"),
    ],
)
def test_a_broken_line_is_named_by_the_worker_and_the_first_one_before(
    inputs_of: Any,
    tmp_path: Path,
    change: Callable[[list[str]], list[str]],
    received: str,
    remedy: str,
) -> None:
    lines = rows(LINES)
    lines[4] = change(lines[4])
    later = write_criteo(tmp_path / "later.txt", lines)
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        examples(inputs_of(later).training, 1)
    said = str(raised.value).replace("\\'", "'")
    check_message(said, f"{later}: line 5: ", received=received, remedy=remedy)
    at_once = write_criteo(tmp_path / "at_once.txt", lines[4:])
    with raises(DataError, "at_once.txt: line 1: ", received=received, remedy=remedy):
        inputs_of(at_once)


def test_a_feature_of_another_type_is_named(inputs_of: Any, columns: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        good = record(rows(LINES)[0], columns)
        writer.write(good.SerializeToString())
        good.features.feature["C3"].int64_list.value.append(7)
        writer.write(good.SerializeToString())
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        examples(inputs_of(path).training, 1)
    assert f"Name: {path}: record 2, Key: C3" in str(raised.value)


def test_a_column_of_another_type_and_one_that_is_missing_are_named(
    inputs_of: Any, columns: Any, tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "x.parquet", rows(LINES), columns)
    table = pyarrow.parquet.read_table(path).drop_columns(["C26"])
    table = table.set_column(2, "I2", pyarrow.array(["a"] * LINES))
    pyarrow.parquet.write_table(table, path)
    with pytest.raises(DataError) as raised:
        inputs_of(path)
    other, missing = str(raised.value).splitlines()
    check_message(other, f"{path}: column I2", received="string", remedy="expected int64")
    check_message(missing, f"{path}: column C26", received="none", remedy="expected string")


@pytest.mark.parametrize(
    ("names", "key", "parts"),
    [
        ([], "data.path", ("*'", "pattern")),
        (["a.csv"], "a.csv: ", ("suffix", "data.source")),
        (["a.txt", "b.parquet"], "data.path", ("criteo", "one format")),
        (["a.txt.gz"], "a.txt.gz: ", ("Not a gzipped file", "")),
        (["a.parquet"], "a.parquet: ", ("another format", "Parquet")),
        (["a.tfrecord"], "a.tfrecord: ", ("1 bytes", "TFRecord")),
        (["a.txt"], "a.txt: line 1: ", ("1 columns", "expected 40: a label")),
    ],
)
def test_files_that_cannot_be_read_are_named_before_anything_starts(
    inputs_of: Any, tmp_path: Path, names: list[str], key: str, parts: tuple[str, str]
) -> None:
    for name in names:
        (tmp_path / name).write_text("x")
    received, remedy = parts
    with raises(DataError, key, received=received, remedy=remedy):
        inputs_of(tmp_path / "*")


def test_a_folder_means_all_its_files(inputs_of: Any, tmp_path: Path) -> None:
    with raises(DataError, "data.path", received=repr(str(tmp_path)), remedy="add files"):
        inputs_of(tmp_path)
    write_criteo(tmp_path / "a.txt", rows(LINES))
    (tmp_path / "_SUCCESS").touch()
    assert inputs_of(tmp_path).source == f"1 criteo file of {tmp_path}"
