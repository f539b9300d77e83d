from __future__ import annotations

import numpy as np
import pytest

from benchmarks.images import Images


@pytest.fixture
def images() -> Images:
    numbers = np.arange(10, dtype=np.int32)
    return Images(numbers[:, None].astype(np.float32), numbers, batch_size=3)


def test_arrays_repeat_the_images_to_the_length_of_an_epoch(images: Images) -> None:
    x, y = images.arrays(steps=5)
    assert y.tolist() == [*range(10), *range(5)]
    assert x[:, 0].tolist() == y.tolist()


def test_the_dataset_is_endless_and_shows_no_image_twice_within_a_pass(images: Images) -> None:
    batches = list(images.dataset_function()().take(6).as_numpy_iterator())
    for x, y in batches:
        assert x.shape == (3, 1)
        assert x[:, 0].tolist() == y.tolist()
    for begin in (0, 3):
        seen = np.concatenate([y for _, y in batches[begin : begin + 3]])
        assert len(set(seen.tolist())) == 9
