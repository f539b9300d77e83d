"""The program that tests untested versions: are the numbers those of Keras alone?

A strategy runs it once in a process of its own, before it is made: ``python -m
tfps.job.version_check``. It trains with loss scaling and a table that is divided among two
servers, saves, loads, and compares the weights with those of one process.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tfps
from tfps.testing import InProcessCluster

EXAMPLES, BATCH, ROWS = 32, 8, 64
TOLERANCE = 1e-5


def _model() -> Any:
    seeded = keras.initializers.RandomUniform(seed=1)
    model = keras.Sequential(
        [
            keras.Input((2,), dtype="int32"),
            keras.layers.Embedding(ROWS, 4, embeddings_initializer=seeded, name="table"),
            keras.layers.Flatten(),
            keras.layers.Dense(1, kernel_initializer=seeded),
        ]
    )
    adam = keras.optimizers.Adam(0.05)
    model.compile(keras.optimizers.LossScaleOptimizer(adam, initial_scale=1024.0), "mse")
    return model


def _trained(model: Any) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    # No id twice: Keras 3.15 updates the slots of one that a batch has twice differently.
    x = draw.permutation(ROWS).reshape(EXAMPLES, 2).astype("int32")
    y = draw.normal(size=(EXAMPLES, 1)).astype("float32")
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    return _weights(model)


def _weights(model: Any) -> list[np.ndarray]:
    return [np.array(weight) for weight in model.get_weights()]


def _difference(one: list[np.ndarray], other: list[np.ndarray]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


def _check(title: str, weights: list[np.ndarray], expected: list[np.ndarray]) -> float:
    difference = _difference(weights, expected)
    if not difference <= TOLERANCE:
        raise SystemExit(f"{title}: weights differ by {difference:.1e} from those of one process")
    return difference


def main() -> None:
    """Train, save and load on a cluster within this process; exit with a text if numbers differ."""
    with InProcessCluster(workers=1, ps=2) as cluster, tempfile.TemporaryDirectory() as folder:
        local = _model()
        start, expected = _weights(local), _trained(local)
        if _difference(start, expected) < 1e-3:
            raise SystemExit("fit of one process: the weights have not moved")
        divided = tfps.partitioners.FixedShardsPartitioner(2)
        strategy = tfps.ParameterServerStrategy(
            cluster.cluster_resolver, variable_partitioner=divided
        )
        with strategy.scope():
            model = _model()
        differences = [_check("fit", _trained(model), expected)]
        for name in ("model.keras", "model.weights.h5"):
            path = Path(folder) / name
            if name == "model.keras":
                model.save(path)
                loaded = keras.saving.load_model(path)
            else:
                model.save_weights(path)
                loaded = _model()
                loaded.load_weights(path)
            loaded_weights = _weights(loaded)
            differences.append(_check(f"load of {name} in one process", loaded_weights, expected))
        again = _trained(local)
        with strategy.scope():
            resumed = keras.saving.load_model(Path(folder) / "model.keras")
        differences.append(_check("fit of the loaded model", _trained(resumed), again))
    print(f"fit, save and load equal one process: weights differ by {max(differences):.1e}")


if __name__ == "__main__":
    main()
