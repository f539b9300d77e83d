"""A small set of files in Fashion-MNIST's format."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tfps.config import bundle


@pytest.fixture(scope="session")
def data() -> ModuleType:
    return bundle.find_example("fashion_mnist").module("data")


@pytest.fixture(scope="session")
def idx(data) -> ModuleType:
    return data.idx


@pytest.fixture
def idx_folder(tmp_path: Path, idx: ModuleType) -> Path:
    """20 training and 10 test images."""
    folder = tmp_path / "idx"
    folder.mkdir()
    random = np.random.default_rng(0)
    for part, count in {"train": 20, "t10k": 10}.items():
        images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for name, array in {"images-idx3": images, "labels-idx1": labels}.items():
            path = folder / f"{part}-{name}-ubyte.gz"
            path.write_bytes(gzip.compress(idx.encode(array)))
    return folder
