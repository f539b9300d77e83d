"""The chief's memory while it predicts with a large table, and saves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.cluster.process_memory import peak_gb
from tfps.partitioners import Balanced, RowShuffle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROWS, WIDTH = 2_000_000, 64
TABLE_GB = 4 * ROWS * WIDTH / 1e9
IDS = np.random.default_rng(0).integers(0, ROWS, (256, 8)).astype("int32")


@pytest.fixture(scope="module")
def cluster_size() -> dict[str, int]:
    return {"workers": 1, "ps": 2}


@pytest.fixture(scope="module", params=[Balanced(), RowShuffle()], ids=["contiguous", "shuffle"])
def strategy_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"variable_partitioner": request.param}


@contextmanager
def _memory_for_a_part_of_it() -> Iterator[None]:
    """The block takes less than half a table of the chief's memory; a copy takes all of one."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = peak_gb("self")
    yield
    assert peak_gb("self") - before < TABLE_GB / 2


class Predict(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.predict_on_batch(IDS[:64])


def _model(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    with strategy.scope():
        layers = [keras.Input((8,), dtype="int32"), keras.layers.Embedding(ROWS, WIDTH)]
        model = keras.Sequential([*layers, keras.layers.Flatten(), keras.layers.Dense(1)])
        model.compile(tfps.optimizers.SparseUpdates(keras.optimizers.Adagrad(0.1)), "mse")
    return model


def test_the_chief_never_has_a_table(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    model, targets = _model(strategy), np.ones((256, 1), "float32")
    uses: list[Callable[[], Any]] = [
        lambda: model.fit(IDS, targets, batch_size=64, epochs=2, verbose=0, callbacks=[Predict()]),
        lambda: model.predict(IDS, verbose=0),
        lambda: model.save(tmp_path / "model.keras"),
        lambda: model.load_weights(tmp_path / "model.keras"),
        lambda: model.export(str(tmp_path / "exported"), verbose=False),
        lambda: tfps.CheckpointManager(model, tmp_path / "managed").save(background=False),
    ]
    model.predict_on_batch(IDS[:1])  # what TensorFlow takes for itself
    for use in uses:
        with _memory_for_a_part_of_it():
            use()
