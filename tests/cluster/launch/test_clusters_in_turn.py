"""One process is the chief of several clusters in turn: each talks to its server of that time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.cluster.counting import numbered
from tests.cluster.counting_job import CountingJob
from tfps.launch import LocalCluster

EXAMPLES = 40


def _from_chief() -> tf.data.Dataset:
    """Data that workers ask the chief's server for."""
    arrays = numbered(EXAMPLES)

    def batches() -> Iterator[Any]:
        for begin in range(0, EXAMPLES, 2):
            yield tuple(array[begin : begin + 2] for array in arrays)

    spec = tuple(tf.TensorSpec([None, array.shape[1]], array.dtype) for array in arrays)
    return tf.data.Dataset.from_generator(batches, output_signature=spec)


# Quicker ones: clusters one after the other in test_fork_server.py, data of the chief in
# tests/cluster/input/test_ways.py.
@pytest.mark.repeats
@pytest.mark.timeout(120)
def test_a_cluster_is_used_again_after_another() -> None:
    environment = {"TFPS_LOGICAL_CPUS": "1"}
    with (
        LocalCluster(workers=1, ps=1, environment=environment) as first,
        LocalCluster(workers=1, ps=1, environment=environment) as second,
    ):
        tf.distribute.ParameterServerStrategy(first.cluster_resolver)  # TensorFlow's own
        chiefs = [first.spec.address("chief", 0)]
        for cluster in (second, first, second, second):
            job = CountingJob(cluster, examples=EXAMPLES)
            job.fit(keras.callbacks.Callback(), epochs=1, data=_from_chief())
            assert job.strategy.stats().examples_seen == EXAMPLES
            chiefs.append(cluster.spec.address("chief", 0))
            job.strategy.close()
    # The server of each earlier strategy still listens at its address.
    assert len(set(chiefs[:4])) == 4
    assert chiefs[4] == chiefs[3]
