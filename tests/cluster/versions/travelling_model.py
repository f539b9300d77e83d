"""A model that is trained and saved with one pair of versions, and loaded with another.

python -m tests.cluster.versions.travelling_model save|load FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tfps
from tfps.tested_versions import parse_minor
from tfps.testing import InProcessCluster

ROWS, EXAMPLES = 40, 20


def model() -> Any:
    network = keras.Sequential(
        [
            keras.Input((2,), dtype="int32"),
            keras.layers.Embedding(ROWS, 3, name="table"),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    network.compile("adam", "mse")
    return network


def save(strategy: tfps.ParameterServerStrategy, folder: Path) -> None:
    with strategy.scope():
        trained = model()
    ids = np.arange(2 * EXAMPLES, dtype="int32").reshape(EXAMPLES, 2)
    trained.fit(ids, np.ones([EXAMPLES, 1]), batch_size=4, verbose=0)
    trained.save(folder / "model.keras")
    trained.save_weights(folder / "model.weights.h5")
    manager = tfps.CheckpointManager(trained, folder / "checkpoints")
    manager.save()
    manager.wait()
    np.savez(folder / "weights.npz", *trained.get_weights())
    (folder / "keras.json").write_text(json.dumps(keras.__version__))


def load(strategy: tfps.ParameterServerStrategy, folder: Path) -> None:
    with np.load(folder / "weights.npz") as saved:
        expected = [saved[name] for name in saved.files]

    def compare(loaded: Any) -> None:
        for found, wanted in zip(loaded.get_weights(), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)

    with strategy.scope():
        from_weights, from_checkpoint = model(), model()
    from_weights.load_weights(folder / "model.weights.h5")
    compare(from_weights)
    tfps.CheckpointManager(from_checkpoint, folder / "checkpoints").restore_latest()
    compare(from_checkpoint)
    assert int(from_checkpoint.optimizer.iterations) == EXAMPLES // 4
    saved_with = json.loads((folder / "keras.json").read_text())
    if parse_minor(saved_with) <= parse_minor(keras.__version__):  # Keras reads no newer file
        with strategy.scope():
            compare(keras.saving.load_model(folder / "model.keras"))


def main() -> None:
    action, folder = {"save": save, "load": load}[sys.argv[1]], Path(sys.argv[2])
    with InProcessCluster(workers=1, ps=2) as cluster:
        divided = tfps.partitioners.FixedShardsPartitioner(2)
        action(
            tfps.ParameterServerStrategy(cluster.cluster_resolver, variable_partitioner=divided),
            folder,
        )


if __name__ == "__main__":
    main()
