"""Criteo's tab-separated files: a label, 13 whole numbers and 26 texts, of which any may be empty.

Source: Criteo Labs, "Display Advertising Challenge", Kaggle, 2014, whose `train.txt` has this form,
and so have the files of Criteo's one-terabyte click log.
"""

from __future__ import annotations

import tensorflow as tf

from recommender.columns import COLUMNS, NUMBER_NAMES
from recommender.settings import NUMBERS

WHOLE_NUMBER = "(-?[0-9]+)?"


def read(file: tf.Tensor) -> tf.data.Dataset:
    """Return the lines of a file, which is compressed if its name ends in .gz."""
    return tf.data.TextLineDataset(file, compression_type=compression_of(file))


def compression_of(file: tf.Tensor) -> tf.Tensor:
    """Return the compression that a file's name stands for."""
    return tf.where(tf.strings.regex_full_match(file, r".*\.gz"), "GZIP", "")


def parse(
    file: tf.Tensor, first: tf.Tensor, lines: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return numbers, categories and labels of some lines.

    Args:
        file: its name, for errors.
        first: how many lines of the file are before these.
        lines: each an example.

    Raises:
        tf.errors.InvalidArgumentError: a line has another number of columns, or no number where
            there should be one; names the file, the line and what was received.
    """
    columns = tf.strings.split(lines, "\t")
    widths = columns.row_lengths()
    wrong = tf.not_equal(widths, len(COLUMNS))

    def width_problem(row: tf.Tensor) -> list[tf.Tensor]:
        expected = f" columns, expected {len(COLUMNS)}: a label, 13 numbers and 26 texts"
        return [": received ", tf.strings.as_string(widths[row]), expected]

    with tf.control_dependencies([_check(file, first, wrong, width_problem)]):
        table = tf.ensure_shape(columns.to_tensor(""), [None, len(COLUMNS)])
    texts = table[:, : 1 + NUMBERS]
    is_number = tf.strings.regex_full_match(texts[:, 1:], WHOLE_NUMBER)
    is_label = tf.strings.regex_full_match(texts[:, :1], "[01]")
    is_right = tf.concat([is_label, is_number], axis=1)

    def number_problem(row: tf.Tensor) -> list[tf.Tensor]:
        column = tf.argmin(tf.cast(is_right[row], tf.int32))
        name = tf.gather(["label", *NUMBER_NAMES], column)
        expected = tf.where(column == 0, "0 or 1", "a whole number, or nothing")
        return [": ", name, ": received '", texts[row, column], "', expected ", expected]

    is_wrong = tf.logical_not(tf.reduce_all(is_right, axis=1))
    with tf.control_dependencies([_check(file, first, is_wrong, number_problem)]):
        values = tf.strings.to_number(tf.where(tf.equal(texts, ""), "0", texts))
    return values[:, 1:], table[:, 1 + NUMBERS :], values[:, 0]


def _check(file: tf.Tensor, first: tf.Tensor, wrong: tf.Tensor, problem: object) -> tf.Operation:
    """Raise for the first line that is wrong."""

    def fail() -> tf.Operation:
        row = tf.argmax(tf.cast(wrong, tf.int32))
        line = tf.strings.as_string(first + row + 1)
        message = tf.strings.join([file, ": line ", line, *problem(row)])  # type: ignore[operator]
        return tf.debugging.Assert(False, [message]) or tf.no_op()

    return tf.cond(tf.reduce_any(wrong), fail, tf.no_op)
