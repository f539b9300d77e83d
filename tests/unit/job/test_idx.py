"""IDX files: damage is found and named before anything starts."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from tests.messages import check_message, raises
from tfps.errors import DataError

IMAGES = "train-images-idx3-ubyte.gz"
LABELS = "train-labels-idx1-ubyte.gz"


def test_reads_what_encode_writes(tmp_path, idx):
    array = np.arange(2 * 28 * 28, dtype=np.uint32).astype(np.uint8).reshape(2, 28, 28)
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(idx.encode(array)))
    assert np.array_equal(idx.read(path, dimensions=3), array)


def test_reads_a_whole_folder(idx_folder, idx):
    arrays = idx.read_folder(idx_folder, suffix=".gz")
    assert {stem: len(array) for stem, array in arrays.items()} == {
        "train-images-idx3-ubyte": 20,
        "train-labels-idx1-ubyte": 20,
        "t10k-images-idx3-ubyte": 10,
        "t10k-labels-idx1-ubyte": 10,
    }


def damage(path, change):
    path.write_bytes(change(path.read_bytes()))


def flip_middle(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-100], "truncated"),
        (lambda content: content[: len(content) // 2], "truncated"),
        (lambda _: b"", "received 0 bytes"),
        (flip_middle, "corrupt"),
        (lambda _: b"<html>not found</html>", "corrupt"),
        (lambda _: gzip.compress(b"\0\0\x08\x03"), "received 4 bytes"),
        (lambda content: gzip.compress(gzip.decompress(content)[:-5]), "received 15675 bytes"),
        (lambda content: gzip.compress(gzip.decompress(content) + b"x"), "received 15681 bytes"),
        (
            lambda _: gzip.compress(b"\0\0\x0d\x03" + bytes(12)),
            "received the first bytes 00 00 0d 03",
        ),
    ],
)
def test_damaged_images_are_named(idx_folder, idx, change, message):
    damage(idx_folder / IMAGES, change)
    with pytest.raises(DataError) as raised:
        idx.read_folder(idx_folder, suffix=".gz")
    assert IMAGES in str(raised.value)
    assert message in str(raised.value)


def test_every_missing_file_is_named(tmp_path, idx):
    with pytest.raises(DataError) as raised:
        idx.read_folder(tmp_path, suffix=".gz")
    lines = str(raised.value).splitlines()
    for line, stem in zip(lines, idx.STEMS, strict=True):
        check_message(line, f"{tmp_path / stem}.gz: ", received="no such file", remedy="data.path")


def test_files_that_do_not_fit_each_other_are_named(idx_folder, idx):
    labels = np.full(19, 10, np.uint8)
    (idx_folder / LABELS).write_bytes(gzip.compress(idx.encode(labels)))
    small = np.zeros((10, 8, 8), np.uint8)
    (idx_folder / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx.encode(small)))
    with pytest.raises(DataError) as raised:
        idx.read_folder(idx_folder, suffix=".gz")
    labels_line, label_line, pixels_line = str(raised.value).splitlines()
    check_message(labels_line, f"{idx_folder / LABELS}: ", received="19 labels, expected 20")
    check_message(label_line, f"{idx_folder / LABELS}: ", received="the label 10, expected 0 to 9")
    check_message(pixels_line, "t10k-images-idx3-ubyte.gz: ", received="8 x 8 pixels")


def test_a_folder_in_the_place_of_a_file_is_named(idx_folder, idx):
    (idx_folder / IMAGES).unlink()
    (idx_folder / IMAGES).mkdir()
    with raises(DataError, IMAGES, received="directory"):
        idx.read_folder(idx_folder, suffix=".gz")
