"""Order and marks: unit tests first, then those on a cluster, then commands as processes.

`make test` runs the main behaviours, each once. What is `slow` (takes minutes), `repeats` another
test with other values or on a cluster, or is `rare` belongs to `make test-all`.
``@pytest.mark.quick("fit", "load*")`` says which variants of a parametrised test `make test` runs;
the others repeat them. Without it all run, but for the one on the second transport.
"""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.harness import fixtures

# pytest-timeout ends what hangs; a busy machine makes single examples slow. `scaled_examples` takes
# the numbers of single tests from here.
settings.register_profile("tfps", deadline=None)
settings.register_profile("tfps-quickly", deadline=None, max_examples=25)
settings.load_profile("tfps")

TESTS = Path(__file__).parent
# Quick ones first: a mistake in a decision shows before a cluster starts.
LEVELS = ("unit", "cluster", "integration")
LATER = ("slow", "repeats", "rare")  # what `make test` leaves to `make test-all`


def _level(item: pytest.Item) -> str:
    level = item.path.relative_to(TESTS).parts[0]
    if level not in LEVELS:
        raise pytest.UsageError(f"{item.path}: tests live below tests/{{{','.join(LEVELS)}}}/.")
    return level


def _variant(item: pytest.Item) -> str:
    """The name of a test's parameters, without the transport that every test runs on."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return ""
    usual = _usual_carrier() if "carrier" in callspec.params else ""
    return callspec.id.removeprefix(usual).removeprefix("-")


def _usual_carrier() -> str:
    return os.environ.get("TFPS_TRANSPORT", "auto")


def _is_on_the_other_carrier(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    usual = _usual_carrier()
    return callspec is not None and callspec.params.get("carrier", usual) != usual


def _leave_variants_to_test_all(items: list[pytest.Item]) -> None:
    found: dict[tuple[str, str], bool] = defaultdict(bool)
    for item in items:
        patterns = [pattern for mark in item.iter_markers("quick") for pattern in mark.args]
        matching = {pattern for pattern in patterns if fnmatchcase(_variant(item), pattern)}
        if not matching and (patterns or _is_on_the_other_carrier(item)):
            item.add_marker(pytest.mark.repeats)
        for pattern in patterns:
            found[item.nodeid.partition("[")[0], pattern] |= pattern in matching
    selects = any("::" in argument for argument in items[0].config.args) if items else False
    selects = selects or "TFPS_TRANSPORT" in os.environ
    for (test, pattern), exists in found.items():
        if not exists and not selects:
            raise pytest.UsageError(f"{test}: quick({pattern!r}) names none of its variants.")


def _group(path: Path) -> str:
    """The group of tests that stays in one process of pytest-xdist, in its order.

    A folder of tests shares a cluster of one process, or module by module one of several. A file is
    enough where no more is shared: commands are processes of their own, and each file that compares
    numbers has a strategy of its own.
    """
    parts = path.relative_to(TESTS).parts
    by_file = parts[0] == "integration" or parts[:2] == ("unit", "numbers")
    return "/".join(parts if by_file else parts[:2])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole groups in the order of the collection, so unit tests in each process first.

    They fail in a process that has connected to a cluster. The marks of ``--dist loadgroup`` do
    not work: pytest-xdist 3.8 writes them to an attribute that pytest 9.2 does not read.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(config.rootpath / nodeid.partition("::")[0])

    return Groups(config, log)


def _place(item: pytest.Item, sizes: Counter[str]) -> tuple[int, bool, int, str]:
    """Long groups first, so that no process is left with one while the others have ended.

    Those of many tests are long; so are benchmarks, and whole jobs that are the one test of a file.
    """
    group, level = _group(item.path), LEVELS.index(_level(item))
    is_whole_job = group.startswith("integration/") and sizes[group] <= 1
    is_first = is_whole_job or group.startswith("integration/benchmarks")
    return level, not is_first, -sizes[group], group


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quickly",
        action="store_true",
        help="try a quarter of the examples of property tests, leave TensorFlow's tuning of inputs "
        "out, and on clusters its optimization of graphs; what runs as a command has both all the "
        "same, but for the long script of the pages; train for fewer epochs, and compare numbers "
        "with one server instead of two",
    )
    parser.addoption(
        "--gpus",
        action="store_true",
        help="let the tests see this machine's GPUs: for those of GPUs; all others compare numbers "
        "to more places than GPUs agree on, or cut a CPU into several devices",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(fixtures, "tfps")
    if not config.getoption("gpus"):
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # A shell lets what it starts in the background ignore Ctrl-C, and its children with it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not _only_hands_out_tests(config):
        _prepare_tensorflow(quickly=config.getoption("quickly"))


def _only_hands_out_tests(config: pytest.Config) -> bool:
    """Whether other processes run the tests: this one would import what it never uses."""
    runs_tests = hasattr(config, "workerinput")
    return not runs_tests and bool(config.getoption("numprocesses", None))


def _prepare_tensorflow(*, quickly: bool) -> None:
    """Before any test module is imported: some use TensorFlow while they are collected.

    That fixes what the tests of one process need. A cluster's chief has more devices than it uses,
    then.
    """
    from tfps.testing import InProcessCluster

    InProcessCluster.reserve(workers=3, ps=2)
    if quickly:
        settings.load_profile("tfps-quickly")
        from tests.quickly import leave_inputs_untuned

        leave_inputs_untuned()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(_level(item))
    _leave_variants_to_test_all(items)
    quick = [item for item in items if not any(map(item.get_closest_marker, LATER))]
    sizes = Counter(_group(item.path) for item in quick)
    items.sort(key=lambda item: _place(item, sizes))


# Of `make test-versions`: what an older Keras lacks is refused by name; the newest lacks nothing.
LACKED = ("keras.optimizers.MultiOptimizer", "no attribute 'MultiOptimizer'", "slots by the paths")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip a test that needs a class which only a Keras newer than this one has."""
    try:
        return (yield)
    except (NotImplementedError, AttributeError) as error:
        import keras

        if hasattr(keras.optimizers, "MultiOptimizer") or not any(
            text in str(error) for text in LACKED
        ):
            raise
        pytest.skip(f"Keras {keras.__version__}: {error}")


def pytest_collection_finish() -> None:
    """A sixth of the time would go into looking through the libraries' objects for garbage."""
    gc.collect()
    gc.freeze()
