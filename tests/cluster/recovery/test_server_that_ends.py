"""SIGTERM of a parameter server: the chief saves first, and no update is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.harness.leaks import assert_no_leaks

pytestmark = pytest.mark.timeout(280)

EPOCHS, STEPS, BATCH = 3, 400, 4
IDS = np.arange(STEPS * BATCH)


class EndServer(keras.callbacks.Callback):
    """Sends server 1 SIGTERM in the second epoch, while workers go on."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.pid = pid

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 1:
            os.kill(self.pid, signal.SIGTERM)


def negative(y_true: Any, y_pred: Any) -> Any:
    return -y_pred


@pytest.mark.slow
@pytest.mark.parametrize("mode", [None, tfps.Synchronous()], ids=["asynchronous", "rounds"])
def test_no_update_is_lost(tmp_path: Path, mode: Any) -> None:
    fault_tolerance = tfps.FaultTolerance(checkpoints=tmp_path / "checkpoints")
    with (
        assert_no_leaks(),
        tfps.LocalCluster(
            workers=2, ps=2, fault_tolerance=fault_tolerance, log_dir=tmp_path / "logs"
        ) as cluster,
    ):
        strategy = tfps.ParameterServerStrategy(
            cluster.cluster_resolver, consistency=mode, fault_tolerance=fault_tolerance
        )
        with strategy.scope():
            layer = keras.layers.Embedding(len(IDS), 1, embeddings_initializer="zeros")
            model = keras.Sequential([keras.Input((), dtype="int64"), layer])
            together = 1 if mode is None else 2  # workers, of which an update is the mean
            model.compile(keras.optimizers.SGD(float(BATCH * together)), loss=negative)
        ends = EndServer(cluster.pid("ps", 1))
        resume = tfps.callbacks.Resume(every_s=3600.0)
        model.fit(
            *(IDS, np.ones(len(IDS), "float32")),
            batch_size=BATCH,
            epochs=EPOCHS,
            verbose=0,
            callbacks=[ends, resume],
        )
        counts = np.rint(model.get_weights()[0][:, 0]).astype(int)
        assert set(counts.tolist()) == {EPOCHS}
        assert strategy.stats().updates_lost == 0
        assert cluster.pid("ps", 1) != ends.pid
        strategy.close()
    log = (tmp_path / "logs" / "ps-1.log").read_text()
    assert "SIGTERM: ps 1 ends when it is saved" in log
    assert "the chief saves nothing" not in log
