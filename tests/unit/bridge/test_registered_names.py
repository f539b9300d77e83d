"""Models that a version with other class names has saved load with the present classes."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

from tests.messages import raises
from tfps.bridge.registered_names import EARLIER_NAMES, REPLACEMENTS
from tfps.errors import UnsupportedError
from tfps.optimizers import SparseUpdates
from tfps.schedules import ScaledLearningRate
from tfps.schedules.scaled_learning_rate import EARLIER_ARGUMENTS


def _with_earlier_names(text: str) -> str:
    """Return the configuration as the earlier version would have written it."""
    for earlier, name in EARLIER_NAMES.items():
        text = text.replace(f'"tfps>{name}"', f'"tfps>{earlier}"')
        text = text.replace(f'"{name}"', f'"{earlier}"')
    for earlier, name in EARLIER_ARGUMENTS.items():
        text = text.replace(f'"{name}"', f'"{earlier}"')
    text = text.replace("tfps.optimizers.sparse_updates", "tfps.optimizers.row_updates")
    return text.replace("tfps.schedules.scaled_learning_rate", "tfps.optimizers.scaled_rate")


def test_a_model_with_earlier_names_loads(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((2,), dtype="int32"), keras.layers.Embedding(4, 3)])
    rate = ScaledLearningRate(0.1, base_batch_size=4, batch_size=8, warm_up_updates=3)
    model.compile(SparseUpdates(keras.optimizers.Adam(rate)), "mse")
    model.fit(np.zeros([4, 2], "int32"), np.ones([4, 2, 3]), epochs=1, verbose=0)
    model.save(tmp_path / "model.keras")
    with (
        zipfile.ZipFile(tmp_path / "model.keras") as saved,
        zipfile.ZipFile(tmp_path / "earlier.keras", "w") as written,
    ):
        for name in saved.namelist():
            data = saved.read(name)
            if name == "config.json":
                data = _with_earlier_names(data.decode()).encode()
                assert "SparseUpdates" not in data.decode()
            written.writestr(name, data)
    loaded = keras.saving.load_model(tmp_path / "earlier.keras")
    assert isinstance(loaded.optimizer, SparseUpdates)
    found = keras.optimizers.serialize(loaded.optimizer)
    assert found == keras.optimizers.serialize(model.optimizer)
    for one, two in zip(model.optimizer.variables, loaded.optimizer.variables, strict=True):
        np.testing.assert_array_equal(two.numpy(), one.numpy())


@pytest.mark.parametrize("earlier", EARLIER_NAMES)
def test_what_is_saved_has_the_present_name(earlier: str) -> None:
    kind = keras.saving.get_registered_object(f"tfps>{earlier}")
    assert keras.saving.get_registered_name(kind) == f"tfps>{EARLIER_NAMES[earlier]}"


@pytest.mark.rare
def test_a_schedule_loads_where_only_the_optimizers_are_imported(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    rate = ScaledLearningRate(0.1, base_batch_size=4, batch_size=8, warm_up_updates=3)
    model.compile(keras.optimizers.SGD(rate), "mse")
    config = keras.saving.serialize_keras_object(model)
    text = _with_earlier_names(json.dumps(config))
    command = [
        sys.executable,
        "-c",
        "import json, sys, keras, tfps.optimizers\n"
        "model = keras.saving.deserialize_keras_object(json.load(sys.stdin))\n"
        "rate = model.optimizer._learning_rate\n"
        "print(type(rate).__name__, rate.warm_up_updates)",
    ]
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["ScaledLearningRate", "3"]


@pytest.mark.parametrize("removed", REPLACEMENTS)
def test_a_removed_class_names_what_to_use(removed: str) -> None:
    config = {
        "module": "tfps.optimizers",
        "class_name": removed,
        "config": {},
        "registered_name": f"tfps>{removed}",
    }
    with raises(UnsupportedError, f"tfps>{removed}", remedy=REPLACEMENTS[removed]):
        keras.saving.deserialize_keras_object(config)
