"""The pairs of TensorFlow and Keras that tests were run with, as the runs have written them."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class Row:
    """The result of the tests on one pair of versions.

    Args:
        tensorflow: the release of TensorFlow.
        keras: the release of Keras.
        python: the version of Python.
        tests: the name of the set of tests: "conformance", "short" or "smoke".
        passed: whether the tests passed.
        closing: the closing line of the tests.
    """

    tensorflow: str
    keras: str
    python: str
    tests: str
    passed: bool
    closing: str

    @property
    def name(self) -> str:
        """The row's name, as ``make test-versions ROWS=...`` takes it."""
        return f"{self.tensorflow}+{self.keras}"


@functools.cache
def read_version_rows() -> tuple[Row, ...]:
    """Return the rows of tested pairs, the newest TensorFlow first, then the newest Keras."""
    rows = (Row(**row) for row in tomllib.loads(FILE.read_text()).get("row", ()))
    return tuple(sorted(rows, key=get_sort_key, reverse=True))


def list_known_releases(package: str) -> tuple[str, ...]:
    """Return the newest release of each minor version with a row that passed, newest first.

    Args:
        package: "tensorflow" or "keras".

    >>> [parse_minor(release) for release in list_known_releases("tensorflow")][0]
    (2, 21)
    """
    releases: dict[tuple[int, int], str] = {}
    passed = {getattr(row, package) for row in read_version_rows() if row.passed}
    for release in sorted(passed, key=_numbers, reverse=True):
        releases.setdefault(parse_minor(release), release)
    return tuple(releases.values())


def format_known_range(package: str) -> str:
    """Return the range of the tested minor versions in words, such as "2.16 to 2.21"."""
    minors = [".".join(map(str, parse_minor(each))) for each in list_known_releases(package)]
    return " to ".join(dict.fromkeys([minors[-1], minors[0]]))


def parse_minor(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version; zeros if it does not begin with numbers.

    >>> parse_minor("2.23.0-dev20261026")
    (2, 23)
    """
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def get_sort_key(row: Row) -> tuple[list[int], list[int]]:
    """Return the numbers of both versions, the key by which rows are sorted."""
    return _numbers(row.tensorflow), _numbers(row.keras)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
