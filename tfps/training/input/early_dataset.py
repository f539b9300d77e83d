"""Datasets that were made before the strategy connected this process to its cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfps.bridge.closures.connection import EARLY_DEVICE, is_in_cluster
from tfps.runtime.coordinator.worker_error import PYTHON_FUNCTIONS


def move_to_this_task(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return the dataset on a device that exists; else TensorFlow fails with "unknown device".

    A dataset derived from it is made on today's device, without a copy. Functions that call Python
    name the old device in their graph; they are taken from the graph of the dataset, in which no
    device is left. That graph begins its shuffles anew, so it is the second choice.
    """
    if not (is_in_cluster() and EARLY_DEVICE in dataset._variant_tensor.device):
        return dataset
    return _without_devices(dataset) if calls_python(dataset) else dataset.take(-1)


def to_graph(dataset: tf.data.Dataset, *, external_state: Any) -> tf.compat.v1.GraphDef:
    """Return a dataset as a graph that names no device.

    Args:
        dataset: any.
        external_state: a `tf.data.experimental.ExternalStatePolicy`: what to do about functions
            that depend on more than their arguments.

    Raises:
        FailedPreconditionError: there are such functions, and the policy is FAIL.
    """
    graph = tf.compat.v1.GraphDef()
    serialized = dataset._as_serialized_graph(external_state_policy=external_state)
    graph.ParseFromString(serialized.numpy())
    for node in iterate_nodes(graph):
        node.device = ""
    return graph


def iterate_nodes(graph: tf.compat.v1.GraphDef) -> Iterator[Any]:
    """Yield all nodes of a graph, also those of its functions."""
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def calls_python(dataset: tf.data.Dataset) -> bool:
    """Return whether a function of a dataset, or of one of its inputs, calls Python."""
    own = any(
        node.op in PYTHON_FUNCTIONS
        for function in dataset._functions()
        for node in iterate_nodes(function.function.graph.as_graph_def())
    )
    return own or any(calls_python(before) for before in dataset._inputs())


def _without_devices(dataset: tf.data.Dataset) -> tf.data.Dataset:
    policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    graph = to_graph(dataset, external_state=policy)
    variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    moved = tf.data.experimental.from_variant(variant, dataset.element_spec)
    length = dataset.cardinality()
    return moved.apply(tf.data.experimental.assert_cardinality(length)) if length >= 0 else moved
