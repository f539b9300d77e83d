"""From what the files hold to what the model takes: logarithms of numbers, ids of texts.

Source: the transformations of the Kaggle display advertising challenge (Criteo Labs, 2014) as in
Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems",
2019: log(1 + x) of a number, where one that is missing or below 0 counts as 0, and the hash of a
category. One that is missing has a hash as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

HASHES = 1 << 62  # many more than rows of any table


def model_features(
    numbers: tf.Tensor, categories: tf.Tensor, table_rows: Sequence[int]
) -> dict[str, tf.Tensor]:
    """Return the features as the model takes them.

    Args:
        numbers: float32, examples by 13; 0 where one is missing.
        categories: texts, examples by 26; empty where one is missing.
        table_rows: how many ids each category has.
    """
    hashes = tf.strings.to_hash_bucket_fast(categories, HASHES)
    ids = hashes % tf.constant(list(table_rows), tf.int64)
    return {"numbers": tf.math.log1p(tf.maximum(numbers, 0.0)), "ids": tf.cast(ids, tf.int32)}
