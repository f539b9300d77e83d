"""Captures the worker and the keys of a scheduled function's run as tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_numbers import get_running_closure
from tfps.bridge.functions.chief_constant import chief_constant
from tfps.consistency.applied_window import key_of_function

if TYPE_CHECKING:
    from tfps.runtime.coordinator.runtime import Runtime

_RUN = tf.TensorSpec([3], tf.int64)


class RunIdentity(NamedTuple):
    """A run of a scheduled function, as its requests name it: worker, incarnation and first key.

    All are int64 scalars. A rerun shares the first key.

    Attributes:
        worker: the index of the worker.
        worker_incarnation: the incarnation of the worker; -1 if no other worker waits for it.
        first_key: the first key of its pushes; the same if the function is run again.
    """

    worker: tf.Tensor
    worker_incarnation: tf.Tensor
    first_key: tf.Tensor


def capture_run_identity(runtime: Runtime) -> RunIdentity:
    """Capture the run of the traced function; its values are set at each call."""
    graph: Any = private.current_graph()
    membership, numbers = runtime.membership, runtime.closure_numbers

    def at_call() -> tf.Tensor:
        worker, incarnation = membership.get_member(private.get_worker_index())
        closure = get_running_closure()
        first_key = key_of_function(numbers.get_number(closure), 0)
        return chief_constant([worker, incarnation, first_key], tf.int64)

    run = graph.capture_call_time_value(at_call, _RUN, key="tfps_run")
    return RunIdentity(*tf.unstack(run))
