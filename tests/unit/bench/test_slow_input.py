from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tfps.bench.accuracy import accuracy_of
from tfps.bench.delay import Delay
from tfps.bench.images import LabelledImages, write_images
from tfps.bench.initial_state import initial_weights
from tfps.bench.slow_input import SlowInput, centred
from tfps.bench.workload import MODELS
from tfps.errors import DataError

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
    assert str(tmp_path) in str(caught.value)
    assert "lacks train-labels-idx1-ubyte.gz, t10k-images" in str(caught.value)
