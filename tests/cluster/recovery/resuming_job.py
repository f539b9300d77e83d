"""A chief that counts its examples, and goes on where another process of this script has stopped.

Its arguments: the folder, and the step before which it is killed, or 0.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tfps
from tests.saves import join_saves

EPOCHS, STEPS, BATCH, EVERY = 3, 20, 4, 6
IDS = np.arange(STEPS * BATCH)


class Kill(keras.callbacks.Callback):
    """Kills this process after some steps, while it trains."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if self.left == 0:
            join_saves()  # so that it is known where the next process goes on
            os.kill(os.getpid(), signal.SIGKILL)


def negative(y_true: Any, y_pred: Any) -> Any:
    return -y_pred


if __name__ == "__main__":
    folder, after = Path(sys.argv[1]), int(sys.argv[2])
    workers = 1 if after else 2
    with tfps.LocalCluster(workers=workers, ps=2) as cluster:
        strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        with strategy.scope():
            layer = keras.layers.Embedding(len(IDS), 1, embeddings_initializer="zeros")
            model = keras.Sequential([keras.Input((), dtype="int64"), layer])
            model.compile(keras.optimizers.SGD(float(BATCH)), loss=negative)
        resume = tfps.callbacks.Resume(folder, every_steps=EVERY)
        callbacks = [resume, *([Kill(after)] if after else [])]
        history = model.fit(
            *(IDS, np.ones(len(IDS), "float32")),
            batch_size=BATCH,
            epochs=EPOCHS,
            verbose=0,
            callbacks=callbacks,
        )
        counts = np.rint(model.get_weights()[0][:, 0]).astype(int).tolist()
        print(json.dumps({"counts": counts, "history": history.history, "epoch": history.epoch}))
