"""What two servers wrote comes back exactly: on one, two, three, and in a process without any."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.cluster.checkpoint.small_model import STEPS, assert_same, fit, small_model, state_of
from tfps.errors import CheckpointError
from tfps.launch import LocalCluster
from tfps.testing import Command

pytestmark = pytest.mark.timeout(180)

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def strategy_with(cluster: LocalCluster) -> Iterator[tfps.ParameterServerStrategy]:
    strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, placement="round_robin")
    yield strategy
    strategy.close()


def _model(strategy: tfps.ParameterServerStrategy, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    with strategy.scope():
        return small_model(**options)


@pytest.mark.parametrize("shared", [None, False], ids=["shared", "streamed"])
def test_back_into_the_same_model(
    shared: bool | None,
    strategy: tfps.ParameterServerStrategy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In blocks of a row or two; the counts of the servers, too."""
    monkeypatch.setenv("TFPS_CHUNK_BYTES", "100")
    model = _model(strategy)
    manager = tfps.CheckpointManager(model, tmp_path, shared=shared)
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


ALONE = """
import sys
import keras, numpy as np, tfps
from tests.cluster.checkpoint.small_model import fit, small_model, state_of
folder, found = sys.argv[1:]
model = small_model()
manifest = tfps.CheckpointManager(model, folder).restore_latest()
assert manifest.epoch == 1
np.savez(found + "-restored", *state_of(model).values())
fit(model)
np.savez(found + "-trained", *state_of(model).values())
manager = tfps.CheckpointManager(model, folder)
manager.save(epoch=2)
manager.wait()
"""


def test_more_and_fewer_servers_and_one_process(
    cluster: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    """Trained for two epochs here, or for one here and one elsewhere: the same numbers."""
    folder = tmp_path / "checkpoints"
    with strategy_with(cluster(workers=1, ps=2)) as strategy:
        model = _model(strategy)
        fit(model)
        tfps.CheckpointManager(model, folder).save(epoch=1, background=False)
        restored, stats = state_of(model), strategy.stats()
        fit(model)
        trained = state_of(model)
    for servers in (1, 3):
        with strategy_with(cluster(workers=1, ps=servers)) as strategy:
            keras.utils.set_random_seed(99)
            with strategy.scope():
                small_model()  # Keras counts it
                model = small_model()
            manifest = tfps.CheckpointManager(model, folder).restore_latest()
            assert manifest is not None
            assert_same(model, restored)
            now = strategy.stats()
            assert now.versions == stats.versions[:1] * servers
            assert now.gradient_staleness_updates == stats.gradient_staleness_updates
            fit(model)
            assert_same(model, trained, tolerance=1e-5)
            assert strategy.stats().versions == (2 * STEPS,) * servers
    arguments = [sys.executable, "-c", ALONE, str(folder), str(tmp_path / "alone")]
    with Command(arguments, deadline_s=100, folder=ROOT) as alone:
        assert alone.wait() == 0, alone.describe()
    for name, expected, tolerance in (("restored", restored, 0.0), ("trained", trained, 1e-5)):
        found = np.load(tmp_path / f"alone-{name}.npz")
        for key, value in zip(found.files, expected.values(), strict=True):
            np.testing.assert_allclose(found[key], value, atol=tolerance, rtol=0)
    # And from the one process back to the servers.
    with strategy_with(cluster(workers=1, ps=2)) as strategy:
        model = _model(strategy)
        manifest = tfps.CheckpointManager(model, folder).restore_latest()
        assert manifest is not None
        assert (manifest.epoch, manifest.counters) == (2, None)
        assert_same(model, trained, tolerance=1e-5)


def test_what_does_not_fit_is_refused(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    tfps.CheckpointManager(_model(strategy), tmp_path).save(background=False)
    other = _model(strategy, width=5)
    fit(other)
    before = state_of(other)
    with pytest.raises(
        CheckpointError, match=r"float32 \(8, 16\) in the checkpoint, float32 \(8, 5\)"
    ):
        tfps.CheckpointManager(other, tmp_path).restore(1)
    assert_same(other, before)


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "adafactor": lambda: keras.optimizers.Adafactor(0.1),
    "loss scale": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, 0.9)),
    "staleness aware": lambda: tfps.optimizers.StalenessAware(keras.optimizers.Adam()),
    "ema": lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=3),
}


@pytest.mark.quick("loss*", "adafactor")
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_optimizers(
    optimizer: Callable[[], Any], strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    """Restored into a model that was never trained, training goes on with the same numbers."""
    model = _model(strategy, optimizer=optimizer())
    fit(model)
    tfps.CheckpointManager(model, tmp_path).save(background=False)
    fit(model)
    expected = state_of(model)
    fresh = _model(strategy, optimizer=optimizer())
    tfps.CheckpointManager(fresh, tmp_path).restore_latest()
    fit(fresh)
    assert_same(fresh, expected, tolerance=1e-6)
