"""Pass a single batch to a worker, for `train_on_batch` and `test_on_batch`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfps.runtime.worker.closure_run import BatchClaim, BatchSource


class OneBatch(BatchSource):
    """Passes one batch as an argument of the closure, with one ticket.

    Args:
        batch: a structure of arrays; Nones at the end of a tuple are left out.
    """

    may_widen_spec = True

    description = "one batch, sent with the step"

    def __init__(self, batch: Any) -> None:
        while isinstance(batch, tuple) and len(batch) > 1 and batch[-1] is None:
            batch = batch[:-1]
        self._batch = tf.nest.map_structure(
            lambda item: None if item is None else tf.convert_to_tensor(item), batch
        )
        self.batch_spec = tf.nest.map_structure(_any_length, self._batch)

    def trace_key(self) -> Any:
        return ("one_batch", str(self.batch_spec))

    def new_pass(self) -> Any:
        return None

    def make_arguments(self, data_pass: Any, offset_steps: int) -> Any:
        return tuple(tf.nest.flatten(self._batch))

    def get_argument_specs(self, arguments: Any) -> Any:
        return tuple(tf.nest.flatten(self.batch_spec))

    def fetch(self, arguments: Any, claim: BatchClaim) -> tuple[tf.Tensor, Any]:
        return claim.ticket >= 0, tf.nest.pack_sequence_as(self.batch_spec, list(arguments))


def _any_length(item: Any) -> Any:
    if item is None:
        return None
    shape = [None, *item.shape[1:]] if item.shape.rank else []
    return tf.TensorSpec(shape, item.dtype)
