"""Sharding policies of `tf.data.Options` that ask for a pipeline per worker."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfps.training.input.dataset_graph import NotPortableError, portable_graph

logger = logging.getLogger(__name__)

Policy = tf.data.experimental.AutoShardPolicy


def pipeline_per_worker(dataset: Any) -> Callable[..., tf.data.Dataset] | None:
    """Return the dataset function that follows a dataset's policy FILE or OFF; else None.

    FILE gives each worker files of its own, and OFF lets each worker see all data, as they do in
    TensorFlow. AUTO, DATA and HINT mean each example once, which tickets see to.

    Args:
        dataset: as it was passed to `fit`.
    """
    if not isinstance(dataset, tf.data.Dataset):
        return None
    policy = dataset.options().experimental_distribute.auto_shard_policy
    if policy not in (Policy.FILE, Policy.OFF):
        return None
    try:
        graph = tf.constant(portable_graph(dataset).SerializeToString())
    except NotPortableError as reason:
        logger.warning(
            "auto_shard_policy=%s needs the dataset on the workers, but %s; the chief iterates "
            "it instead, and each example is used once.",
            policy.name,
            reason,
        )
        return None
    spec = dataset.element_spec

    def on_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
        variant = tf.raw_ops.DatasetFromGraph(graph_def=graph)
        if policy is Policy.FILE:
            flat = tf.nest.flatten(spec)
            dense = [isinstance(component, tf.TensorSpec) for component in flat]
            variant = tf.raw_ops.AutoShardDataset(
                input_dataset=variant,
                num_workers=context.num_input_pipelines,
                index=context.input_pipeline_id,
                output_types=[
                    c.dtype if d else tf.variant for c, d in zip(flat, dense, strict=True)
                ],
                output_shapes=[
                    c.shape if d else tf.TensorShape(None) for c, d in zip(flat, dense, strict=True)
                ],
                auto_shard_policy=Policy.FILE.value,
            )
        return tf.data.experimental.from_variant(variant, spec)

    return on_worker
