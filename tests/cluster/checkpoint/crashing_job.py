"""A chief that goes on from the last checkpoint, and loses a task at a random moment of a save.

Its arguments: folder, task type to kill (``ps``, ``worker``, ``chief``), seed of the moment.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.cluster.checkpoint.counting_model import counting_model, updates_of

DATA = np.zeros([60, 1], "float32")
EPOCHS = 6
UNAVAILABLE = 3


class KillOnce(keras.callbacks.Callback):
    """Saves after each epoch; during the second save it ends a task.

    The first save says how long one takes.
    """

    def __init__(self, manager: tfps.CheckpointManager, victim: str, moment: float) -> None:
        super().__init__()
        self.manager, self.victim, self.moment = manager, victim, moment
        self.killer: threading.Timer | None = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.killer is None and self.manager.last_seconds is not None:
            delay_s = self.moment * self.manager.last_seconds
            self.killer = threading.Timer(delay_s, self._kill)
            self.killer.start()
        self.manager.save(epoch=epoch + 1)
        if self.manager.last_seconds is None:
            self.manager.wait()
            print("saved in", self.manager.last_seconds, flush=True)

    def _kill(self) -> None:
        print("killing", self.victim, flush=True)
        if self.victim == "chief":
            os.kill(os.getpid(), signal.SIGKILL)
        cluster.kill(self.victim, 1)


if __name__ == "__main__":
    folder, victim, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    cluster = tfps.LocalCluster(workers=2, ps=2)
    strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, placement="round_robin")
    with strategy.scope():
        model = counting_model()
    manager = tfps.CheckpointManager(model, folder)
    before = [manifest.number for manifest in manager.checkpoints]
    last = manager.restore_latest()
    print("restored", "nothing" if last is None else last.number, flush=True)
    if last is not None:
        assert last.number == before[-1]
        assert last.counters is not None
        assert updates_of(model) == last.counters.versions[0] == strategy.stats().updates_applied
    kill = KillOnce(manager, victim, random.Random(seed).random())
    try:
        model.fit(DATA, DATA, batch_size=1, epochs=EPOCHS, verbose=0, callbacks=[kill])
        manager.wait()
    except tf.errors.UnavailableError as error:
        print("unavailable", flush=True)
        raise SystemExit(UNAVAILABLE) from error
    assert kill.killer is not None
    kill.killer.join()
    manager.save(background=False)
    print("trained to", updates_of(model), flush=True)
