from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import slow_input
from benchmarks.accuracy import accuracy_of
from benchmarks.classifier import initial_weights
from benchmarks.images import LabelledImages
from benchmarks.slow_input import Delay, SlowInput
from benchmarks.workload import MODELS

delays = st.builds(
    Delay,
    step_s=st.floats(0.001, 1),
    slow_worker=st.none() | st.integers(0, 3),
    slow_factor=st.floats(1, 20),
    transient_share=st.floats(0, 1),
    transient_factor=st.floats(1, 20),
    spread=st.floats(0, 0.9),
)
seeds = st.integers(0, 2**31 - 1)


def slow(folder: Path, delay: Delay) -> Any:
    """The dataset of a worker; every image has the value of its number in all pixels."""
    labels = np.arange(100, dtype=np.uint8)
    pixels = labels[:, None, None] * np.ones([1, 28, 28], np.uint8)
    data = LabelledImages(pixels, labels, pixels, labels)
    return SlowInput(str(data.write_pixels(folder)), data.labels, 10, delay, 1).of_worker(0)


def test_a_batch_is_waited_for_after_the_step_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is fetched ahead: each wait begins when its batch is asked for."""
    waits_us: list[int] = []

    def note(wait_us: np.int64) -> np.int32:
        waits_us.append(int(wait_us))
        return np.int32(len(waits_us))

    def noted(elements: Any, wait_us: Any) -> Any:
        def after_the_wait(*batch: Any) -> Any:
            with tf.control_dependencies([tf.numpy_function(note, [wait_us], tf.int32)]):
                return tuple(tf.identity(each) for each in batch)

        return elements.map(after_the_wait)

    monkeypatch.setattr(slow_input, "delay_elements", noted)
    delay = Delay(step_s=0.01, transient_share=0.3, transient_factor=4)
    batches = iter(slow(tmp_path, delay))
    durations_s = delay.durations_s(seed=1, worker=0, steps=8)
    for step in range(len(durations_s)):
        next(batches)
        assert waits_us == [int(1e6 * duration_s) for duration_s in durations_s[: step + 1]]


def test_accuracy_is_that_of_the_model() -> None:
    model = MODELS["layers"].build(keras)
    model.set_weights(initial_weights([tuple(w.shape) for w in model.weights], seed=3))
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=[200, 28, 28]).astype(np.float32)
    labels = generator.integers(0, 10, 200)
    rightly = np.mean(np.argmax(model(inputs), axis=1) == labels)
    assert accuracy_of(model.get_weights(), inputs, labels) == rightly


@given(delay=delays, seed=seeds, worker=st.integers(0, 20), steps=st.integers(1, 40))
def test_a_length_depends_on_the_seed_the_worker_and_the_step_alone(
    delay: Delay, seed: int, worker: int, steps: int
) -> None:
    more = delay.durations_s(seed=seed, worker=worker, steps=steps + 7)
    assert np.array_equal(more[:steps], delay.durations_s(seed=seed, worker=worker, steps=steps))
    assert (more > 0).all()
    even = replace(delay, slow_factor=1.0).durations_s(seed=seed, worker=worker, steps=steps + 7)
    assert np.allclose(more, even * (delay.slow_factor if worker == delay.slow_worker else 1.0))
