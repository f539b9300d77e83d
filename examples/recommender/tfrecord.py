"""TFRecord files of `tf.train.Example`: features by the names of `recommender.columns`.

``label`` and ``I1`` to ``I13`` are int64, ``C1`` to ``C26`` bytes; one value each. Numbers and
categories may be missing.
"""

from __future__ import annotations

import tensorflow as tf

from recommender.columns import CATEGORY_NAMES, LABEL, NUMBER_NAMES
from recommender.criteo import compression_of

SPECIFICATION = {
    LABEL: tf.io.FixedLenFeature([], tf.int64),
    **{name: tf.io.FixedLenFeature([], tf.int64, default_value=0) for name in NUMBER_NAMES},
    **{name: tf.io.FixedLenFeature([], tf.string, default_value="") for name in CATEGORY_NAMES},
}


def read(file: tf.Tensor) -> tf.data.Dataset:
    """Return the records of a file, which is compressed if its name ends in .gz."""
    return tf.data.TFRecordDataset(file, compression_type=compression_of(file))


def parse(
    file: tf.Tensor, first: tf.Tensor, records: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return numbers, categories and labels of some records.

    Args:
        file: its name, for errors.
        first: how many records of the file are before these.
        records: each a serialized `tf.train.Example`.

    Raises:
        tf.errors.InvalidArgumentError: a record has no label, or a feature of another type; names
            the file, the record and the feature.
    """
    numbers = first + 1 + tf.range(tf.size(records, out_type=tf.int64))
    names = tf.strings.join([file, ": record ", tf.strings.as_string(numbers)])
    found = tf.io.parse_example(records, SPECIFICATION, example_names=names)
    values = tf.stack([found[name] for name in NUMBER_NAMES], axis=1)
    categories = tf.stack([found[name] for name in CATEGORY_NAMES], axis=1)
    return tf.cast(values, tf.float32), categories, tf.cast(found[LABEL], tf.float32)
