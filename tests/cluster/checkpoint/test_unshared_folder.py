"""Servers that do not see a folder that they must share are named, and nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import pytest

import tfps
from tests.cluster.checkpoint.counting_model import counting_model
from tests.messages import raises
from tfps.errors import ConfigError

pytestmark = [pytest.mark.timeout(120), pytest.mark.rare]

# Of each process its own, as a disk of each machine would be.
FOLDER = "/proc/self/cwd/checkpoints"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[keras.Model]:
    """The tasks' working directory is another one than the chief's."""
    for name in ("theirs", "ours"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "theirs")
    with tfps.LocalCluster(workers=1, ps=2) as cluster:
        monkeypatch.chdir(tmp_path / "ours")
        strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        with strategy.scope():
            model = counting_model()
        yield model


def test_it_is_refused_before_anything_is_written(model: keras.Model, tmp_path: Path) -> None:
    manager = tfps.CheckpointManager(model, FOLDER, shared=True)
    key, received = "tfps.CheckpointManager: shared", "True, but ps 0, ps 1"
    remedy = "leave `shared` out"
    with raises(ConfigError, key, received=received, remedy=remedy):
        manager.save(background=False)
    data = np.zeros([4, 1])
    with raises(ConfigError, key, received=received, remedy=remedy):
        model.fit(data, data, verbose=0, callbacks=[tfps.callbacks.Checkpoint(manager)])
    for name in ("theirs", "ours"):
        assert not [path for path in (tmp_path / name).rglob("*") if path.is_file()]
    own = tfps.CheckpointManager(model, FOLDER)
    own.save(epoch=7, background=False)
    with raises(ConfigError, "shared", received="True, but ps 0, ps 1"):
        manager.restore_latest()
    restored = own.restore_latest()
    assert restored is not None
    assert restored.epoch == 7
