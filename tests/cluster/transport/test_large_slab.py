"""A slab, a message and a variable above 2 GB: beyond 2**31 bytes nothing may be lost."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.cluster.process_memory import available_gb, peak_gb
from tests.harness.leaks import assert_no_leaks
from tfps.launch import LocalCluster

ROWS, WIDTH = 536_872, 1_000
BATCH_SIZE, EPOCHS = 4, 2
# The first row, the last one, and those around the 256 MiB where the first chunk ends and the
# second begins, and around 2**31 bytes.
IDS = [0, 67_108, 67_109, 67_110, ROWS - 2, ROWS - 1, ROWS - 1, ROWS - 1]
# All processes together.
NEEDED_GB = 20


def _sum_of_outputs(_y_true: Any, y_pred: Any) -> Any:
    return keras.ops.sum(y_pred, axis=-1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="reads /proc")
@pytest.mark.parametrize("transport", ["direct", "grpc"])
def test_fit(transport: str) -> None:
    """Each row of a table grows by its share of a batch, with SGD at rate -1, and no other row."""
    assert 4 * ROWS * WIDTH > 2**31
    if available_gb() < NEEDED_GB:
        pytest.skip(f"needs {NEEDED_GB} GB of memory, {available_gb():.1f} GB are free")
    with assert_no_leaks(), LocalCluster(workers=1, ps=1) as cluster:
        strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, transport=transport)
        with strategy.scope():
            table = keras.layers.Embedding(ROWS, WIDTH, embeddings_initializer="zeros")
            model = keras.Sequential([keras.Input((), dtype="int32"), table])
            model.compile(keras.optimizers.SGD(-1.0), _sum_of_outputs)
        x = np.array(IDS, np.int32)
        model.fit(x, np.zeros(len(IDS)), batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=0)
        stats = strategy.stats()
        value = table.embeddings.numpy()
        peaks = {
            "chief": peak_gb(os.getpid()),
            "worker": peak_gb(cluster.pid("worker", 0)),
            "ps": peak_gb(cluster.pid("ps", 0)),
        }
        strategy.close()
    print(transport, {name: f"{peak:.1f} GB" for name, peak in peaks.items()})
    assert stats.transports == (transport,)
    assert stats.updates_applied == EPOCHS * len(IDS) // BATCH_SIZE
    grown = np.flatnonzero(value.any(axis=1))
    np.testing.assert_array_equal(grown, np.unique(IDS))
    for row in grown:
        np.testing.assert_array_equal(value[row], EPOCHS * IDS.count(int(row)) / BATCH_SIZE)
