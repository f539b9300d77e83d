"""Order and marks: unit tests first, then those on a cluster, then commands as processes.

`make test` runs the main behaviours, each once: what takes minutes, what repeats a test with other
values, and what is rarer is slow and belongs to `make test-all`.
``@pytest.mark.quick("fit", "load*")`` says which variants of a parametrised test stay; without it
all do, but for the one on the second carrier.
"""

from __future__ import annotations

import os
from collections import defaultdict
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import settings

from tfps import pytest_plugin
from tfps.testing import OneProcess

# Before any test module is imported: some use TensorFlow while they are collected, which fixes what
# the tests of one process need. A cluster's chief has more devices than it uses, then.
OneProcess.reserve(workers=3, ps=2)

# pytest-timeout ends what hangs; a busy machine makes single examples slow.
settings.register_profile("tfps", deadline=None)
settings.load_profile("tfps")

TESTS = Path(__file__).parent
# Quick ones first: a mistake in a decision shows before a cluster starts.
LEVELS = ("unit", "cluster", "integration")


def _level(item: pytest.Item) -> str:
    level = item.path.relative_to(TESTS).parts[0]
    if level not in LEVELS:
        raise pytest.UsageError(f"{item.path}: tests live below tests/{{{','.join(LEVELS)}}}/.")
    return level


def _variant(item: pytest.Item) -> str:
    """The name of a test's parameters, without the carrier that every test runs on."""
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
            item.add_marker(pytest.mark.slow)
        for pattern in patterns:
            found[item.nodeid.partition("[")[0], pattern] |= pattern in matching
    selects = any("::" in argument for argument in items[0].config.args) if items else False
    selects = selects or "TFPS_TRANSPORT" in os.environ
    for (test, pattern), exists in found.items():
        if not exists and not selects:
            raise pytest.UsageError(f"{test}: quick({pattern!r}) names none of its variants.")


def _group(item: pytest.Item) -> str:
    """What stays in one process of pytest-xdist where there are several, in its order.

    A unit test fails in a process that has connected to a cluster, and a cluster costs seconds to
    start; commands are processes of their own, and a file of them shares what it has run.
    """
    level = _level(item)
    return str(item.path) if level == "integration" else level


def pytest_configure(config: pytest.Config) -> None:
    """Take the fixtures from this checkout where pytest did not find the plugin by itself.

    It does not where tfps was installed before it had one, and where no plugin is to be found.
    """
    if not config.pluginmanager.is_registered(pytest_plugin):
        config.pluginmanager.register(pytest_plugin, "tfps")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(_level(item))
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    _leave_variants_to_test_all(items)
    items.sort(key=lambda item: LEVELS.index(_level(item)))
