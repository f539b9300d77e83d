"""Clusters in a project's own tests: tasks come and go, and a failure shows their logs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.project import pages
from tests.plugin import NO_ENTRY_POINTS, PLUGIN

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.rare, pytest.mark.timeout(200)]

# What is left behind is waited for, as it may be about to end; here it is not.
CONFTEST = """
import functools
import tfps

tfps.testing.assert_no_leaks = functools.partial(tfps.testing.assert_no_leaks, settle_s=1)
"""

TESTS = """
import subprocess
import sys
import time

import keras
import numpy as np
import psutil
import pytest
import tfps

started = []

@pytest.mark.tfps_cluster(workers=2, ps=1, environment={"TFPS_LOGICAL_CPUS": "1"})
def test_training_goes_on(tfps_cluster):
    with tfps.ParameterServerStrategy(tfps_cluster.cluster_resolver).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    data = np.ones([32, 3]), np.ones([32, 1])
    model.fit(*data, batch_size=8, verbose=0)
    tfps_cluster.kill("worker", 1)
    model.fit(*data, batch_size=8, verbose=0)
    tfps_cluster.suspend("worker", 0)
    assert psutil.Process(tfps_cluster.pid("worker", 0)).status() == psutil.STATUS_STOPPED
    tfps_cluster.resume("worker", 0)
    # The strategy, which the fixture closes, has not met this one yet.
    tfps_cluster.restart("worker", 1)
    assert model.optimizer.iterations.numpy() == 8

@pytest.fixture(scope="module")
def shared(tfps_cluster_factory):
    return tfps_cluster_factory(workers=1)

def test_a_module_shares_one_of_a_size(shared, tfps_cluster_factory):
    assert tfps_cluster_factory(workers=1, ps=1) is shared
    assert len(shared.logs) == 2

@pytest.mark.tfps_cluster(workers=1)
def test_fails(tfps_cluster, shared):
    assert tfps_cluster.pid("ps", 0) != shared.pid("ps", 0)
    started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(59)"]))
    for path in [*tfps_cluster.logs.values(), *shared.logs.values()]:
        while "serves at" not in path.read_text():  # it accepts connections a moment before
            time.sleep(0.01)
    raise ValueError("on purpose")

def test_the_end():
    started[0].kill()
    started[0].wait()
"""

# Modules in the order in which they run.
MODULES = [
    """
def test_one_starts(tfps_cluster_factory):
    cluster = tfps_cluster_factory(workers=1)
    assert not pids
    pids.append(cluster.pid("worker", 0))
""",
    """
def test_the_next_module_has_it_too(tfps_cluster_factory):
    cluster = tfps_cluster_factory(workers=1)
    assert cluster.pid("worker", 0) == pids.pop()
    cluster.kill("worker", 0)
""",
    """
def test_nobody_has_one_whose_task_was_killed(tfps_cluster_factory):
    cluster = tfps_cluster_factory(workers=1)
    assert cluster.status("worker", 0) is None
    pids.append(cluster.pid("worker", 0))
""",
    """
def test_where_no_module_may_follow_it_ends():
    assert not psutil.pid_exists(pids.pop())
""",
]


def test_a_projects_own_tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of the pages run as well, and pass."""
    of_pages = pages.runnable("pytest")
    assert len(of_pages) > 1
    for number, block in enumerate(of_pages):
        # Before those with a cluster: the first one is of one process.
        (pytester.path / f"test_before_{number}.py").write_text(block.text)
    for name, value in NO_ENTRY_POINTS.items():
        monkeypatch.setenv(name, value)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_own=TESTS, processes="pids = []")
    for number, module in enumerate(MODULES):
        text = f"import psutil\nfrom processes import pids\n{module}"
        (pytester.path / f"test_pool_{number}.py").write_text(text)
    folder = pytester.mkdir("kept")
    result = pytester.runpytest_subprocess(*PLUGIN, f"--basetemp={folder}", timeout=180)
    # The failed test has left a process behind, which is an error of its own.
    result.assert_outcomes(passed=3 + len(MODULES) + len(of_pages), failed=1, errors=1)
    shown = result.stdout.str()
    error, _, failure = shown.partition("= FAILURES =")
    assert re.search(r"received ProcessSnapshot\(.*sleep\(59\).* 1 s after the end", error)
    assert "ValueError: on purpose" in failure
    for part, name in ((error, "ps 0"), (failure, "ps 0"), (failure, "worker 0")):
        assert f"- log of {name} -" in part
        assert f"tfps: {name} serves at 127.0.0.1:" in part
    # The shared cluster's, too, but not that of the test which has passed.
    logs = {Path(path) for path in re.findall(r"\(all of it: (.*)\)", failure)}
    assert len(logs) == 4
    assert not [path for path in logs if "goes_on" in str(path) or "serves" not in path.read_text()]
