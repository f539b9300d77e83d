"""A graph whose runs can be interrupted anywhere, and then run again."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tfps.bridge.functions.owned_graph import OwnedGraph


def _build_and_run(graph: tf.Graph) -> int:
    graph._group_lock = None  # what an interrupted run would leave locked
    with graph.as_default():
        three = tf.constant(3)
    with tf.compat.v1.Session(graph=graph) as session:
        return int(session.run(three))


def test_no_lock_of_tensorflow_is_taken() -> None:
    assert _build_and_run(OwnedGraph()) == 3


def test_what_it_is_for() -> None:
    """Where TensorFlow's own graph takes no such lock any more, ours is not needed."""
    with pytest.raises(AttributeError, match="group"):
        _build_and_run(tf.Graph())
