"""A checkpoint of two servers is restored exactly.

A streamed one: test_saving.py, and tests/unit/numbers/test_damaged_checkpoint.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import tfps
from tests.cluster.checkpoint.small_model import STEPS, assert_same, fit, small_model_on, state_of

pytestmark = pytest.mark.timeout(180)


@pytest.mark.slow
def test_back_into_the_same_model(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes back in blocks of a row or two, with the counts of the servers."""
    monkeypatch.setenv("TFPS_CHUNK_BYTES", "100")
    model = small_model_on(strategy)
    manager = tfps.CheckpointManager(model, tmp_path)
    fit(model)
    manager.save(epoch=1)
    saved, stats = state_of(model), strategy.stats()
    fit(model, epochs=2)  # while it is being written
    manager.wait()
    assert len(list((tmp_path / "checkpoint-000001").glob("ps-0001-*.index"))) > 5
    manifest = manager.restore_latest()
    assert manifest is not None
    assert manifest.counters is not None
    assert manifest.counters.versions == stats.versions
    servers = {server for tensor in manifest.tensors.values() for server in tensor.servers}
    assert servers == {0, 1}
    assert_same(model, saved)
    now = strategy.stats()
    assert now.versions == stats.versions
    assert now.examples_seen == stats.examples_seen
    assert now.gradient_staleness_updates == stats.gradient_staleness_updates
    fit(model)
    assert strategy.stats().updates_applied == stats.updates_applied + STEPS
