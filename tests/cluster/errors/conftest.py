"""Two workers, and a check that the cluster is as good after an error as before it."""

from __future__ import annotations

from collections.abc import Iterator

import keras
import numpy as np
import pytest

import tfps


@pytest.fixture(scope="module")
def sound_model(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("sgd", "mse")
    return model


@pytest.fixture(autouse=True)
def _works_afterwards(sound_model: keras.Model) -> Iterator[None]:
    yield
    before = int(sound_model.optimizer.iterations.numpy())
    history = sound_model.fit(np.ones([32, 4]), np.ones([32, 3]), batch_size=8, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert int(sound_model.optimizer.iterations.numpy()) == before + 4
