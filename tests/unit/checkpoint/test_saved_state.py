"""A state survives the manifest and the file of its arrays, and a wrong one is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests.messages import raises
from tfps.checkpoint.saved_state import read_state, split_state, write_arrays
from tfps.errors import CheckpointError


def test_a_state_is_read_as_it_was_saved(tmp_path: Path) -> None:
    weights = np.arange(6, dtype="float32").reshape(2, 3)
    state = {
        "best": np.float32(0.5),
        "own": {"weights": [weights, tf.constant([1, 2])], "name": "a", "none": None},
        "flag": True,
    }
    values, arrays = split_state(state)
    weights[:] = 0  # the program goes on
    write_arrays(arrays, tmp_path)
    found = read_state(json.loads(json.dumps(values)), tmp_path)
    np.testing.assert_array_equal(found["own"]["weights"][0], np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(found["own"]["weights"][1], [1, 2])
    assert (found["best"], found["flag"], found["own"]["name"]) == (0.5, True, "a")
    assert found["own"]["none"] is None


def test_a_state_without_arrays_writes_no_file(tmp_path: Path) -> None:
    values, arrays = split_state({"epoch": 3})
    write_arrays(arrays, tmp_path)
    assert not list(tmp_path.iterdir())
    assert read_state(values, tmp_path) == {"epoch": 3}


def test_what_cannot_be_saved_is_named() -> None:
    with raises(CheckpointError, "state.callbacks.Own.seen: received set"):
        split_state({"callbacks": {"Own": {"seen": {1}}}})
    with raises(CheckpointError, "state.counts: received dict"):
        split_state({"counts": {1: 2}})
