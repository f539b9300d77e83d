"""Tokens reach the workers that are woken, and no others."""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf

from tfps.consistency.server_ledger import ServerLedger
from tfps.consistency.waiters import Waiters
from tfps.runtime.coordinator.server_contents import ServerContents

WORKERS = 3
DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


def _tokens(waiters: Waiters) -> list[int]:
    """Return the number of tokens in each worker's queue."""
    queues = [waiters.queue_of(worker) for worker in range(WORKERS)]
    return [int(tf.raw_ops.QueueSizeV2(handle=queue)) for queue in queues]


def test_each_that_is_woken_gets_one_token() -> None:
    with tf.device(DEVICE):
        contents = ServerContents(device=DEVICE, container="waiters")
        waiters = Waiters(ServerLedger(contents, workers=WORKERS))

        @tf.function(autograph=False)
        def wake(released: Any) -> tf.Tensor:
            waiters.wake(released)
            return tf.constant(0)

        seen = []
        for released in ([1, 0, 1], [0, 0, 0], [0, 1, 1]):
            wake(tf.constant(released, tf.int64))
            seen.append(_tokens(waiters))
        assert seen == [[1, 0, 1], [1, 0, 1], [1, 1, 2]]
        assert int(waiters.take_token(tf.constant(2, tf.int64))) == 1
        assert _tokens(waiters) == [1, 1, 1]
        contents.free(contents.records)


def test_waking_is_one_condition_however_many_wait() -> None:
    """Each branch is a function of its own, to be traced, sent and prepared."""
    contents = ServerContents(device=DEVICE, container="waiters")
    waiters = Waiters(ServerLedger(contents, workers=WORKERS))

    @tf.function(autograph=False)
    def wake(released: tf.Tensor) -> tf.Tensor:
        waiters.wake(released)
        return tf.constant(0)

    graph = wake.get_concrete_function(tf.TensorSpec([WORKERS], tf.int64)).graph.as_graph_def()
    assert len(re.findall(r'op: "(?:Stateless)?(?:If|Case)"', str(graph))) == 1


def test_all_are_woken_without_a_condition() -> None:
    with tf.device(DEVICE):
        contents = ServerContents(device=DEVICE, container="waiters")
        waiters = Waiters(ServerLedger(contents, workers=WORKERS))

        @tf.function(autograph=False)
        def wake_all() -> tf.Tensor:
            waiters.wake_all()
            return tf.constant(0)

        graph = wake_all.get_concrete_function().graph.as_graph_def()
        assert not re.findall(r'op: "(?:Stateless)?(?:If|Case)"', str(graph))
        wake_all()
        assert _tokens(waiters) == [1, 1, 1]
        contents.free(contents.records)
