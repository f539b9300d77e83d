"""Adds up tensors of the workers of one group, with one vector for each dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfps.transport.tokens import REDUCE, REGROUP


class Group(NamedTuple):
    """The workers that add up their tensors, as a worker that joins hears of them."""

    generation: tf.Tensor
    updates: tf.Tensor  # of the mirrored weights, by all workers
    home: tf.Tensor  # the number of updates in the values of the servers
    members: tf.Tensor  # 1 for each worker that takes part

    @classmethod
    def parse(cls, ids: tf.Tensor) -> Group:
        """Return the group that the ids of a reply describe; see `RoundGate.describe_group`."""
        return cls(ids[0], ids[1], ids[2], ids[3:])


class WeightSums:
    """Traces sums over all members of a group.

    Args:
        job_id: the job.
        worker: the index of this worker.
        workers: the largest number of workers.
        peers: the addresses of the workers; see `transport.reducer`.
    """

    def __init__(self, *, job_id: int, worker: tf.Tensor, workers: int, peers: tf.Tensor) -> None:
        self._job_id, self.worker, self.workers, self._peers = job_id, worker, workers, peers

    def end_older(self, generation: tf.Tensor) -> tf.Tensor:
        """End the groups of this worker before a generation. Returns a tensor that follows."""
        return tf.raw_ops.PyFunc(
            input=[tf.constant(self._job_id, tf.int64), self.worker, generation],
            token=REGROUP,
            Tout=[tf.int64],
        )[0]

    def count_bytes(self, group: Group, tensors: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return how many bytes this worker sends for the sums: slices of its own, and one sum."""
        own, members = sum(t.dtype.size * int(np.prod(t.shape)) for t in tensors), group.members
        return 2 * own * (tf.reduce_sum(members) - 1) // tf.reduce_sum(members)

    def add_up(
        self, group: Group, tensors: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return whether all members took part, and the sum of each tensor over them."""
        by_dtype: dict[tf.DType, list[int]] = {}
        for position, tensor in enumerate(tensors):
            by_dtype.setdefault(tensor.dtype, []).append(position)
        vectors = [
            tf.concat([tf.reshape(tensors[p], [-1]) for p in positions], 0)
            for positions in by_dtype.values()
        ]
        own = [tf.constant(self._job_id, tf.int64), group.generation, self.worker]
        done, *sums = tf.raw_ops.PyFunc(
            input=[self._peers, tf.concat([tf.stack(own), group.members], 0), *vectors],
            token=REDUCE,
            Tout=[tf.int64, *by_dtype],
        )
        done.set_shape([])
        result: dict[int, tf.Tensor] = {}
        for vector, total, positions in zip(vectors, sums, by_dtype.values(), strict=True):
            total.set_shape(vector.shape)
            sizes = [int(np.prod(tensors[p].shape)) for p in positions]
            for p, part in zip(positions, tf.split(total, sizes), strict=True):
                result[p] = tf.reshape(part, tensors[p].shape)
        return done == 1, [result[p] for p in range(len(tensors))]
