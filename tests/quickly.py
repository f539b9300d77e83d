"""The parts of TensorFlow that ``--quickly`` skips, in the tests' process and in long scripts."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def leave_inputs_untuned() -> None:
    """Tune no input: an iterator that is tuned may take up to a minute to be deleted.

    TensorFlow 2.21 wakes the thread that tunes it before it says that this thread shall end; on a
    busy machine that one sleeps again, until it would have tuned next: as long as the iterator has
    lived. A process that connects to the worker then waits for it.
    """
    # Every iterator calls this of its dataset, here and when it is traced for a worker.
    tf.data.Dataset._apply_debug_options = _untuned


def _untuned(dataset: Any) -> Any:
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def leave_graphs_as_traced(*, leave: bool = True) -> None:
    """Optimize no graph: a third of the time would go into those that run a few times."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": leave})
