"""The planted click log as batches, made on the workers. Imports TensorFlow where it makes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from recommender.inputs import ShardInputs
from recommender.settings import ClicksSection, RecommenderJob

if TYPE_CHECKING:
    from recommender.click_log import ClickLog

# Where the positions of each part begin: none is in two parts.
TRAINING, VALIDATION, TEST = 0, 1 << 40, 1 << 41
SHARDS_PER_WORKER = 2  # so that a fast worker takes more


def log_of(data: ClicksSection) -> ClickLog:
    """Return the log that ``[data]`` describes."""
    from recommender.click_log import ClickLog

    settings = data.click_log
    return ClickLog(seed=settings.seed, table_rows=data.rows(), exponent=settings.exponent)


def planted_inputs(config: RecommenderJob) -> ShardInputs:
    """Return the parts of a log. Each epoch goes on where the last one ended.

    Args:
        config: of the job.
    """
    settings, size, rows = config.data.click_log, config.data.batch_size, config.data.rows()
    steps = math.ceil(settings.examples_per_epoch / size)
    training = config.training.epochs * steps * size
    words = (
        f"{training:,} training, {settings.validation_examples:,} validation and "
        f"{settings.test_examples:,} test examples; {len(rows)} tables of {sum(rows):,} rows"
    )

    def best() -> float:
        from recommender.best_auc import best_auc

        return best_auc(log_of(config.data), examples=settings.test_examples)

    return ShardInputs(
        source=f"planted click log, seed {settings.seed}",
        sizes_in_words=words,
        training=batches(config.data, first=TRAINING, examples=training),
        validation=batches(config.data, first=VALIDATION, examples=settings.validation_examples),
        test=batches(config.data, first=TEST, examples=settings.test_examples),
        shards=SHARDS_PER_WORKER * config.cluster.workers,
        steps=steps,
        epoch_examples=training,
        best_auc=best,
        target_auc=settings.target_auc,
    )


def batches(data: ClicksSection, *, first: int, examples: int) -> Callable[[Any], Any]:
    """Return what makes the batches of a shard of some positions.

    Args:
        data: of the job.
        first: position.
        examples: how many positions.
    """
    size = data.batch_size

    def make(context: Any) -> Any:
        import tensorflow as tf

        log = log_of(data)

        def batch(begin: tf.Tensor) -> Any:
            end = tf.minimum(begin + size, examples)
            return log.examples(first + tf.range(begin, end, dtype=tf.int64))

        begins = tf.data.Dataset.range(0, examples, size)
        begins = begins.shard(context.num_input_pipelines, context.input_pipeline_id)
        return begins.map(batch).prefetch(2)

    return make
