"""The fixtures with clusters, and the markers with their sizes: a pytest plugin.

It imports tfps when a test uses a fixture: a process of pytest-xdist that only hands out tests
needs no TensorFlow.
"""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import tfps
    from tests.harness.cluster_pool import ClusterPool
    from tfps.launch import LocalCluster
    from tfps.testing import InProcessCluster

MARKERS = {
    "tfps_cluster": "tfps_cluster(workers=2, ps=1, environment=None): the cluster of processes "
    "that the fixture of this name starts; the environment has further variables of its tasks",
    "tfps_one_process": "tfps_one_process(workers=2, ps=1): the workers and the parameter servers "
    "that the fixture of this name makes within this process",
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "tfps_cluster": {"workers": 2, "ps": 1, "environment": None},
    "tfps_one_process": {"workers": 2, "ps": 1},
}
MAX_SHOWN_LINES = 40

_log_folders = pytest.StashKey[list[Path]]()
_pool = pytest.StashKey["ClusterPool"]()


@pytest.fixture
def tfps_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    """A `tfps.LocalCluster` of the test's own: processes that it may kill, suspend and restart.

    ``@pytest.mark.tfps_cluster(workers=2, ps=1)`` says how large it is. After the test nothing may
    be left of it: no process, no port, no thread.
    """
    from tests.harness.leaks import assert_no_leaks

    start = _make_starter(request.node, tmp_path_factory)
    with assert_no_leaks(), start(**_read_mark(request.node, "tfps_cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _tfps_cluster_pool(request: pytest.FixtureRequest) -> Iterator[ClusterPool]:
    """The pool of clusters that modules share."""
    from tests.harness.cluster_pool import ClusterPool

    with contextlib.closing(ClusterPool()) as pool:
        request.config.stash[_pool] = pool
        yield pool


@pytest.fixture(scope="module")
def tfps_cluster_factory(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    _tfps_cluster_pool: ClusterPool,
) -> Iterator[Callable[..., LocalCluster]]:
    """A function that starts a cluster, or returns a pooled cluster of the requested size.

    Tests of a module that leave its tasks as they were share one, and so does the next module that
    asks for the same: where no process can be forked, a start takes seconds. It takes ``workers``,
    ``ps`` and ``environment`` as the marker does, and ``fault_tolerance`` as `LocalCluster` does:
    with it, it is the module's own, whose tests spend its budget together. After the module's last
    test nothing may be left but what waits for the next one: a cluster of which no test has
    failed, killed a task or left a strategy open.
    """
    from tests.harness.leaks import assert_no_leaks

    pool, failed = _tfps_cluster_pool, request.session.testsfailed
    start = _make_starter(request.node, tmp_path_factory)
    clusters: dict[Any, LocalCluster] = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(assert_no_leaks(kept=lambda: pool.resources))

        @stack.callback
        def give_back() -> None:
            pool.take_back(clusters.values(), keep=request.session.testsfailed == failed)

        def get(
            *,
            workers: int = 2,
            ps: int = 1,
            environment: Mapping[str, str] | None = None,
            fault_tolerance: tfps.FaultTolerance | None = None,
        ) -> LocalCluster:
            size: dict[str, Any] = {"workers": workers, "ps": ps, "environment": environment}
            key = (workers, ps, frozenset((environment or {}).items()), fault_tolerance)
            if key not in clusters:
                if fault_tolerance is None:
                    clusters[key] = pool.lend(start, **size)
                    _keep_logs(request.node, clusters[key].log_dir)
                else:
                    clusters[key] = stack.enter_context(
                        start(**size, fault_tolerance=fault_tolerance)
                    )
            return clusters[key]

        yield get


@pytest.fixture
def tfps_one_process(request: pytest.FixtureRequest) -> Iterator[InProcessCluster]:
    """A `tfps.testing.InProcessCluster`: workers and parameter servers within this process.

    ``@pytest.mark.tfps_one_process(workers=2, ps=1)`` says how many. TensorFlow makes the devices
    for them only when it starts, so the most that any selected test needs is reserved before the
    first test runs.
    """
    from tfps.testing import InProcessCluster

    with InProcessCluster(**_read_mark(request.node, "tfps_one_process")) as cluster:
        yield cluster


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest: describe the markers."""
    for description in MARKERS.values():
        config.addinivalue_line("markers", description)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Called by pytest: let TensorFlow start with enough devices for each selected test."""
    sizes = [
        _read_mark(item, "tfps_one_process")
        for item in session.items
        if "tfps_one_process" in getattr(item, "fixturenames", ())
    ]
    if sizes:
        from tfps.errors import BackendError, ConfigError
        from tfps.testing import InProcessCluster

        most = {name: max(size[name] for size in sizes) for name in ("workers", "ps")}
        # TensorFlow has started already, or Keras runs on something else: the fixture says so for
        # each test that it concerns.
        with contextlib.suppress(BackendError, ConfigError):
            InProcessCluster.reserve(**most)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Called by pytest: add the ends of the tasks' logs to the report of a failed test."""
    with _disable_garbage_collection():
        report = yield
    if report.failed:
        folders = [path for node in item.listchain() for path in node.stash.get(_log_folders, ())]
        report.sections += [section for folder in folders for section in _log_sections(folder)]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """Called by pytest: stop pooled clusters that the next module does not request."""
    yield
    pool = item.config.stash.get(_pool, None)
    if pool is not None and nextitem is not None and nextitem.path != item.path:
        asks = "tfps_cluster_factory" in getattr(nextitem, "fixturenames", ())
        if not asks:
            pool.end_idle()


@contextlib.contextmanager
def _disable_garbage_collection() -> Iterator[None]:
    """Disable garbage collection while pytest parses the source of a failed test.

    Python 3.11 raises "AST constructor recursion depth mismatch" where a finalizer that the
    collector runs meanwhile, as of a TensorFlow handle, lets another thread parse; pytest would
    end with that.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _make_starter(
    node: pytest.Item | pytest.Collector, folders: Any
) -> Callable[..., LocalCluster]:
    """Return a function that starts clusters; their logs are in the reports of a node's tests."""
    from tfps.launch import LocalCluster

    name = re.sub(r"\W", "_", node.name)[:30]

    def start(**options: Any) -> LocalCluster:
        folder = folders.mktemp(f"tfps-{name}-")
        _keep_logs(node, folder)  # before it starts: they say why it did not
        return LocalCluster(log_dir=folder, **options)

    return start


def _keep_logs(node: pytest.Item | pytest.Collector, folder: Path) -> None:
    folders = node.stash.setdefault(_log_folders, [])
    if folder not in folders:
        folders.append(folder)


def _read_mark(node: pytest.Item, name: str) -> dict[str, Any]:
    """Return the options of the nearest mark with a name, or the defaults."""
    mark = node.get_closest_marker(name)
    return {**DEFAULTS[name], **(mark.kwargs if mark else {})}


def _log_sections(folder: Path) -> list[tuple[str, str]]:
    from tfps.launch.process import last_lines

    return [
        (
            f"log of {path.stem.replace('-', ' ')}",
            "\n".join(
                [*last_lines(path, MAX_SHOWN_LINES, with_noise=True), f"(all of it: {path})"]
            ),
        )
        for path in sorted(folder.glob("*.log"))
    ]
