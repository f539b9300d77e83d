"""Build the class-balanced part of Fashion-MNIST that ships with the repository.

    cd examples
    python -m fashion_mnist.build_subset FOLDER_WITH_THE_FOUR_IDX_FILES

The first 1,000 training and 300 test images of every class, in their original order: the same
input gives the same images on every machine.
"""

from __future__ import annotations

import argparse
import lzma
from pathlib import Path

import numpy as np

from fashion_mnist import idx

SUBSET = Path(__file__).parent / "subset"
PER_CLASS = {"train": 1000, "t10k": 300}


def first_of_each_class(labels: np.ndarray, *, count: int) -> np.ndarray:
    """Return the positions of the first `count` examples of every class, in ascending order."""
    chosen = [np.flatnonzero(labels == label)[:count] for label in range(idx.CLASS_COUNT)]
    return np.sort(np.concatenate(chosen))


def build(source: Path, target: Path) -> None:
    """Read the original files and write the smaller ones."""
    arrays = idx.read_folder(source, suffix=".gz")
    target.mkdir(parents=True, exist_ok=True)
    for part, count in PER_CLASS.items():
        rows = first_of_each_class(arrays[f"{part}-labels-idx1-ubyte"], count=count)
        for stem in idx.STEMS:
            if stem.startswith(part):
                path = target / f"{stem}.xz"
                data = idx.encode(arrays[stem][rows])
                path.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
                print(f"{path.name}: {len(rows)} examples, {path.stat().st_size} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="folder with the four original .gz files")
    parser.add_argument("--target", type=Path, default=SUBSET, help="where the .xz files go")
    arguments = parser.parse_args()
    build(arguments.source, arguments.target)
