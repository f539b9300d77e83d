"""A chief of a job with a name, all of whose numbers are the number of a server's updates."""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.cluster.checkpoint.counting_model import count_of, counting_model

STEPS = 20  # of an epoch, or scheduled at once
MODES = {
    "asynchronous": tfps.Asynchronous(),
    "bounded": tfps.BoundedStaleness(1),
    "synchronous": tfps.Synchronous(),
}


def counts_of(strategy: tfps.ParameterServerStrategy) -> list[int]:
    """Return the updates of each server, which all numbers on it agree on.

    Raises:
        AssertionError: they are a mixture, or are not what the server has counted.
    """
    values, versions = strategy.pull()
    counts = []
    for server, version in enumerate(versions):
        names = [view.variable for view in strategy.plan.views if view.server == server]
        counts.append(count_of(values[name] for name in names if "learning_rate" not in name))
        assert counts[-1] == version, (server, counts[-1], version)
    return counts


def print_word(word: str, strategy: tfps.ParameterServerStrategy) -> None:
    print(word, *counts_of(strategy), flush=True)


class PrintUpdates(keras.callbacks.Callback):
    def __init__(self, strategy: tfps.ParameterServerStrategy) -> None:
        super().__init__()
        self._strategy = strategy

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        print("update", self._strategy.stats().updates_applied, flush=True)


def main(mode: str, what: str, rounds: int) -> None:
    """Print the counts of the job, train for some rounds, and print the counts again.

    Args:
        mode: of `MODES`.
        what: trains: ``fit``, or ``functions``.
        rounds: epochs, or how often functions are scheduled; with many, each update is printed.
    """
    strategy = tfps.ParameterServerStrategy(
        job="counting", consistency=MODES[mode], placement="round_robin"
    )
    with strategy.scope():
        model = counting_model()
    model.optimizer.build(model.trainable_variables)
    print_word("found", strategy)
    if what == "fit":
        data = np.zeros([STEPS, 1])
        callbacks = [PrintUpdates(strategy)] if rounds > 9 else []
        model.fit(data, data, batch_size=1, epochs=rounds, verbose=0, callbacks=callbacks)
    else:

        @tf.function
        def step() -> None:
            model.optimizer.apply([tf.ones(v.shape) for v in model.trainable_variables])

        for _ in range(rounds):
            for _ in range(STEPS):
                strategy.coordinator.schedule(step)
            while rounds > 9 and not strategy.coordinator.done():
                print("update", strategy.stats().updates_applied, flush=True)
            strategy.coordinator.join()
    print_word("ended", strategy)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
