"""A table of 2 GB that no process ever holds whole."""

from __future__ import annotations

import os
from pathlib import Path

import keras
import numpy as np
import pytest

import tfps
from tests.cluster.process_memory import available_gb, peak_gb
from tests.harness.leaks import assert_no_leaks
from tfps.launch import LocalCluster
from tfps.partitioners import RowShuffle

ROWS, WIDTH = 2_000_000, 250
TABLE_GB = 4 * ROWS * WIDTH / 1e9
# All processes together.
NEEDED_GB = 8


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="reads /proc")
@pytest.mark.parametrize("initializer", ["zeros", "uniform", "glorot_normal"])
def test_nobody_holds_it_whole(initializer: str) -> None:
    if available_gb() < NEEDED_GB:
        pytest.skip(f"needs {NEEDED_GB} GB of memory, {available_gb():.1f} GB are free")
    with assert_no_leaks(), LocalCluster(workers=1, ps=2) as cluster:
        strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, RowShuffle())
        processes = [cluster.pid("ps", index) for index in (0, 1)]
        idle_gb = [peak_gb(process) for process in processes]
        chief_gb = peak_gb(os.getpid())
        with strategy.scope():
            table = keras.layers.Embedding(ROWS, WIDTH, embeddings_initializer=initializer)
            table.build()
        shards = table.embeddings.value.variables
        assert [tuple(shard.shape) for shard in shards] == [(ROWS // 2, WIDTH)] * 2
        for process, before_gb in zip(processes, idle_gb, strict=True):
            # Its half, and one block with what is taken of it.
            assert peak_gb(process) - before_gb < 0.6 * TABLE_GB
        assert peak_gb(os.getpid()) - chief_gb < 0.3 * TABLE_GB
        rows = np.stack([shards[k].sparse_read([0, ROWS // 2 - 1]).numpy() for k in (0, 1)])
        assert (rows != 0).any() == (initializer != "zeros")
        strategy.close()
