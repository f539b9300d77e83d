from __future__ import annotations

import itertools
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.accuracy import accuracy_of
from benchmarks.classifier import initial_weights
from benchmarks.images import LabelledImages, write_images
from benchmarks.slow_input import Delay, SlowInput, centred
from benchmarks.workload import MODELS
from tfps.errors import DataError

CONSTANT = Delay(step_s=0.05, slow_worker=2, slow_factor=5)
TRANSIENT = Delay(step_s=0.05, transient_share=0.1, transient_factor=10)
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
DELAY = Delay(step_s=0.01, transient_share=0.3, transient_factor=4)


@pytest.fixture
def data() -> LabelledImages:
    """Every image has the value of its number in all pixels."""
    numbers = np.arange(100, dtype=np.uint8)
    pixels = numbers[:, None, None] * np.ones([1, 28, 28], np.uint8)
    return LabelledImages(pixels, numbers, pixels, numbers)


def slow(data: LabelledImages, folder: Path, delay: Delay | None, *, seed: int = 1) -> SlowInput:
    return SlowInput(str(data.write_pixels(folder)), data.labels, 10, delay, seed)


def labels_of(dataset: Any, batches: int) -> list[int]:
    drawn = itertools.islice(dataset.as_numpy_iterator(), batches)
    return [int(label) for _, labels in drawn for label in labels]


def test_a_batch_is_waited_for_after_the_step_before(data: LabelledImages, tmp_path: Path) -> None:
    wanted_s = DELAY.durations_s(seed=1, worker=0, steps=8)
    batches = iter(slow(data, tmp_path, DELAY).of_worker(0))
    for duration_s in wanted_s:
        time.sleep(0.05)  # a step, in which nothing may be fetched ahead
        begun_s = time.perf_counter()
        next(batches)
        assert time.perf_counter() - begun_s >= duration_s


def test_images_keep_their_labels_and_each_comes_once_a_visit(
    data: LabelledImages, tmp_path: Path
) -> None:
    dataset = slow(data, tmp_path, Delay(step_s=0.0)).of_worker(0)
    for inputs, labels in itertools.islice(dataset.as_numpy_iterator(), 3):
        assert inputs.shape == (10, 28, 28)
        assert np.allclose(inputs[:, 0, 0], centred(labels.astype(np.float32)))
    assert sorted(labels_of(dataset, 10)) == list(range(100))


def test_the_order_depends_on_the_seed_and_the_worker(data: LabelledImages, tmp_path: Path) -> None:
    even = Delay(step_s=0.0)
    first = labels_of(slow(data, tmp_path, even).of_worker(0), 3)
    assert first == labels_of(slow(data, tmp_path, even).of_worker(0), 3)
    assert first != labels_of(slow(data, tmp_path, even).of_worker(1), 3)
    assert first != labels_of(slow(data, tmp_path, even, seed=2).of_worker(0), 3)
    assert first == labels_of(slow(data, tmp_path, None).of_worker(0), 3)  # without a wait


def test_accuracy_is_that_of_the_model() -> None:
    model = MODELS["layers"].build(keras)
    model.set_weights(initial_weights([tuple(w.shape) for w in model.weights], seed=3))
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=[200, 28, 28]).astype(np.float32)
    labels = generator.integers(0, 10, 200)
    rightly = np.mean(np.argmax(model(inputs), axis=1) == labels)
    assert accuracy_of(model.get_weights(), inputs, labels) == rightly


def test_initial_weights_depend_on_the_seed_alone() -> None:
    shapes = MODELS["mlp"].shapes
    one, same, other = (initial_weights(shapes, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not np.array_equal(one[0], other[0])
    assert not one[1].any()
    assert 0.9 * np.sqrt(6 / (784 + 128)) < one[0].max() <= np.sqrt(6 / (784 + 128))


def test_the_subset_has_what_is_trained_on_and_what_is_tested_with(tmp_path: Path) -> None:
    data = LabelledImages.load(write_images(tmp_path))
    assert data.images.shape == (10_000, 28, 28)
    assert data.test_images.shape == (3_000, 28, 28)
    assert set(data.test_labels) == set(data.labels) == set(range(10))


def test_a_folder_without_the_full_data_is_named(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte.gz").touch()
    with pytest.raises(DataError) as caught:
        write_images(tmp_path, tmp_path)
    for name in ("train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
        assert str(tmp_path / name) in str(caught.value)
    assert "expected a folder with the four original files" in str(caught.value)


def test_one_worker_is_slow_all_the_time() -> None:
    lengths = [set(CONSTANT.durations_s(seed=1, worker=worker, steps=50)) for worker in range(3)]
    assert lengths == [{0.05}, {0.05}, {0.25}]


def test_each_worker_is_slow_at_times_of_its_own() -> None:
    drawn = [TRANSIENT.durations_s(seed=1, worker=worker, steps=4000) for worker in range(3)]
    for durations_s in drawn:
        assert set(durations_s) == {0.05, 0.5}
        assert np.mean(durations_s == 0.5) == pytest.approx(0.1, abs=0.02)
    assert not np.array_equal(drawn[0], drawn[1])
    again = TRANSIENT.durations_s(seed=2, worker=0, steps=4000)
    assert not np.array_equal(drawn[0], again)


def test_a_spread_lies_evenly_around_the_length() -> None:
    spread = Delay(step_s=0.1, spread=0.3).durations_s(seed=3, worker=1, steps=4000)
    assert spread.min() >= 0.07
    assert spread.max() <= 0.13
    assert spread.mean() == pytest.approx(0.1, rel=0.02)


@given(delay=delays, seed=seeds, worker=st.integers(0, 20), steps=st.integers(1, 40))
def test_a_length_depends_on_the_seed_the_worker_and_the_step_alone(
    delay: Delay, seed: int, worker: int, steps: int
) -> None:
    more = delay.durations_s(seed=seed, worker=worker, steps=steps + 7)
    assert np.array_equal(more[:steps], delay.durations_s(seed=seed, worker=worker, steps=steps))
    assert (more > 0).all()


@given(delay=delays, seed=seeds, worker=st.integers(0, 3))
def test_the_moments_do_not_depend_on_who_is_slow(delay: Delay, seed: int, worker: int) -> None:
    even = replace(delay, slow_factor=1.0)
    factor = delay.slow_factor if worker == delay.slow_worker else 1.0
    ours, theirs = (d.durations_s(seed=seed, worker=worker, steps=20) for d in (delay, even))
    assert np.allclose(ours, factor * theirs)
