"""A saved divided model trains on under another division, and in one process too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.numbers.comparison import LOCAL
from tests.unit.numbers.saved import Journey
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(600)]


@contextmanager
def _servers(number: int, log_dir: Path) -> Iterator[LocalCluster]:
    with LocalCluster(workers=1, ps=number, log_dir=log_dir) as cluster:
        yield cluster


# One process has a journey in tests/unit/numbers/shards/test_saving.py, and a cluster what two
# servers write and read in tests/cluster/checkpoint/test_restore.py.
def test_a_training_moves_on(tmp_path: Path) -> None:
    """Each cluster starts from another form of the files that the last one has saved."""
    Journey("adam", 2, 1, (1, 3)).travel(_servers, local=LOCAL, folder=tmp_path)
