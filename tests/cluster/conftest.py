"""Clusters for tests: one per module and size, with their logs in every failure's report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tfps.launch import LocalCluster
from tfps.launch.process import last_lines
from tfps.testing import watch_leftovers

SHOWN_LINES = 40

_open_clusters: list[LocalCluster] = []


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LocalCluster]]:
    """Return a function that starts a cluster, or hands out the module's one of that size.

    Starting a cluster costs seconds, so tests of a module share it; a test that ends a task
    starts it again.
    """
    clusters: dict[tuple[int, int], LocalCluster] = {}

    def get(*, workers: int = 2, ps: int = 1) -> LocalCluster:
        if (workers, ps) not in clusters:
            folder = tmp_path_factory.mktemp(f"cluster-{workers}-{ps}-")
            clusters[workers, ps] = LocalCluster(workers=workers, ps=ps, log_dir=folder)
            _open_clusters.append(clusters[workers, ps])
        return clusters[workers, ps]

    with watch_leftovers():
        yield get
        for started in clusters.values():
            _open_clusters.remove(started)
            started.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the ends of the tasks' logs to the report of a failed test."""
    report = yield
    if report.failed:
        for started in _open_clusters:
            for name, path in started.logs.items():
                report.sections.append((f"log of {name}", "\n".join(_tail(path))))
    return report


def _tail(path: Path) -> list[str]:
    return last_lines(path, SHOWN_LINES)


@pytest.fixture(autouse=True)
def _coordinator_messages(caplog: pytest.LogCaptureFixture) -> None:
    """Keep what TensorFlow's coordinator says in a failed test's report."""
    caplog.set_level(logging.INFO, logger="tensorflow")
