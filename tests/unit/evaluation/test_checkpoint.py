"""The files that count as checkpoints, and their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfps.evaluation.checkpoint import CheckpointFile, File, Format, checkpoints_among


def _files(*names: str) -> list[File]:
    return [File(name=name, changed_ns=1, size_bytes=1) for name in names]


def _names(*names: str) -> list[str]:
    return [checkpoint.name for checkpoint in checkpoints_among(_files(*names))]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ([], []),
        (["ckpt-1.index", "ckpt-1.data-00000-of-00001", "checkpoint"], ["ckpt-1"]),
        (["ckpt-1.index"], []),
        (["ckpt-1.data-00000-of-00001"], []),
        (["ckpt-1.index", "ckpt-1.data-00000-of-00002"], []),
        (["c.index", "c.data-00001-of-00002", "c.data-00000-of-00002"], ["c"]),
        (["c.index", "d.data-00000-of-00001"], []),
        (["a.weights.h5", "b.keras"], ["b.keras", "a.weights.h5"]),
        (["a.h5", "a.json", "events.out.tfevents", "ckpt-1_temp", "index"], []),
    ],
)
def test_what_is_found(names: list[str], found: list[str]) -> None:
    assert _names(*names) == found
    assert _names(*reversed(names)) == found


def test_formats() -> None:
    files = _files("a.weights.h5", "b.keras", "c.index", "c.data-00000-of-00001")
    assert [checkpoint.format for checkpoint in checkpoints_among(files)] == [
        Format.TENSORFLOW,
        Format.MODEL,
        Format.WEIGHTS,
    ]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("ckpt-12", 12),
        ("ckpt-0007", 7),
        ("epoch-3.weights.h5", 3),
        ("model-10.keras", 10),
        ("ckpt", None),
        ("ckpt12", None),
        ("weights.03-0.25.keras", None),  # a loss, not an epoch
        ("latest.weights.h5", None),
    ],
)
def test_numbers(name: str, number: int | None) -> None:
    checkpoint = CheckpointFile(name=name, format=Format.WEIGHTS, changed_ns=0, size_bytes=0)
    assert checkpoint.number == number


def test_equal_times_are_told_apart_by_numbers_in_names() -> None:
    assert _names("ckpt-9.keras", "ckpt-10.keras", "ckpt-1.keras") == [
        "ckpt-10.keras",
        "ckpt-9.keras",
        "ckpt-1.keras",
    ]


def test_names_with_the_same_numbers_have_an_order() -> None:
    assert _names("ckpt-1.keras", "ckpt-01.keras") == _names("ckpt-01.keras", "ckpt-1.keras")


@given(
    st.lists(
        st.builds(
            File,
            name=st.from_regex(r"[a-c0-9-]{1,4}\.keras", fullmatch=True),
            changed_ns=st.integers(0, 3),
            size_bytes=st.integers(0, 3),
        ),
        unique_by=lambda file: file.name,
    )
)
def test_time_comes_before_everything_else(files: list[File]) -> None:
    found = checkpoints_among(files)
    assert len(found) == len(files)
    assert [c.changed_ns for c in found] == sorted((f.changed_ns for f in files), reverse=True)
    assert len({checkpoint.recency for checkpoint in found}) == len({f.name for f in files})
