"""Quantities as people read them, also beside the edges of their units."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tfps.units import format_bytes, format_seconds

FACTORS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (999_999, "1.0 MB"),
        (10**12, "1.0 TB"),
        (12_345 * 10**12, "12345.0 TB"),
    ],
)
def test_bytes(count: int, expected: str) -> None:
    assert format_bytes(count) == expected


@given(count=st.integers(0, 10**15))
def test_bytes_read_back(count: int) -> None:
    number, unit = format_bytes(count).split()
    assert float(number) < 1000 or unit == "TB"
    assert float(number) * FACTORS[unit] == pytest.approx(count, abs=0.0501 * FACTORS[unit])


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (1, "1 s"),
        (119.4, "119 s"),
        (119.6, "2 min 0 s"),
        (120, "2 min 0 s"),
        (179.7, "3 min 0 s"),
        (3601, "60 min 1 s"),
    ],
)
def test_seconds(seconds: float, expected: str) -> None:
    assert format_seconds(seconds) == expected
