"""Sums that workers take among themselves, as steps with all-reduce do, and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.usage import EpochClock
from tfps.transport.tokens import REDUCE

WORKER = "/job:worker/replica:0/task:{}/device:CPU:0"


class WorkerSums:
    """Loops on all workers of a runtime, in which they add up a vector again and again."""

    def __init__(self, runtime: Any) -> None:
        self._runtime, self._generations = runtime, itertools.count(1)
        self._workers = range(runtime.workers)
        self._pool = ThreadPoolExecutor(len(self._workers))

    def loop(self, size_bytes: int) -> Callable[[int, EpochClock], None]:
        """Return a function that makes a number of sums and times them."""
        plane, job_id = self._runtime.data_plane, self._runtime.job_id
        addresses = self._runtime.worker_addresses
        for worker in self._workers:  # each opens its port
            plane.find_peers(worker, addresses=addresses)
        peers = plane.find_peers(0, addresses=addresses)
        generation, members = next(self._generations), [1] * len(self._workers)

        @tf.function(autograph=False)
        def sums(worker: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
            place = tf.concat(
                [tf.stack([tf.constant(job_id, tf.int64), generation, worker]), members], 0
            )

            def add_up(done: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                vector = tf.ones([size_bytes // 4])
                reached, result = tf.raw_ops.PyFunc(
                    input=[tf.constant(peers), place, vector],
                    token=REDUCE,
                    Tout=[tf.int64, tf.float32],
                )
                return done + 1, total + tf.cast(reached, tf.float32) * result[0]

            loop = (tf.constant(0), tf.constant(0.0))
            _, total = tf.while_loop(
                lambda done, _: done < count, add_up, loop, parallel_iterations=1
            )
            return total

        def start(worker: int, count: int) -> float:
            with tf.device(WORKER.format(worker)):
                return float(sums(tf.constant(worker, tf.int64), tf.constant(count)))

        def run(count: int, clock: EpochClock) -> None:
            clock.begin()
            totals = [*self._pool.map(start, self._workers, [count] * len(self._workers))]
            clock.end(count)
            expected = [float(count * len(self._workers))] * len(self._workers)
            if not np.allclose(totals, expected):
                raise RuntimeError(f"received sums {totals}, expected {expected}")

        return run
