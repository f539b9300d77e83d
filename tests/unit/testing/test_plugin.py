"""The pytest plugin, as projects use it that have tfps installed, whether they need it or not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.plugin import NO_ENTRY_POINTS, PLUGIN
from tfps import pytest_plugin

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def _no_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in NO_ENTRY_POINTS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_a_project_without_tfps_pays_nothing(
    backend: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a project may use Keras on another backend."""
    monkeypatch.setenv("KERAS_BACKEND", backend)
    pytester.makepyfile(
        """
        import sys
        import pytest

        @pytest.mark.parametrize("number", range(3))
        def test_nothing_is_imported(number):
            assert "tfps.pytest_plugin" in sys.modules
            assert number < 2
            costly = {"tfps.testing", "tfps.launch", "tensorflow", "keras", "psutil", "numpy"}
            assert costly & set(sys.modules) == set()
        """
    )
    result = pytester.runpytest_subprocess(*PLUGIN, timeout=60)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*assert 2 < 2"])


def test_a_fixture_says_that_keras_runs_on_another_backend(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before TensorFlow starts, and the project's other tests run."""
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    pytester.makepyfile(
        """
        import sys
        import pytest

        @pytest.mark.tfps_cluster(workers=1)
        def test_of_processes(tfps_cluster):
            raise AssertionError("this ran")

        def test_of_a_module(tfps_cluster_factory):
            raise AssertionError("this ran")

        @pytest.mark.tfps_one_process(ps=2)
        def test_in_this_process(tfps_one_process):
            raise AssertionError("this ran")

        def test_something_else():
            assert {"tensorflow", "keras"} & set(sys.modules) == set()
        """
    )
    result = pytester.runpytest_subprocess(*PLUGIN, timeout=60)
    result.assert_outcomes(passed=1, errors=3)
    refused = "E * tfps.errors.BackendError: backend: received *"
    for name in ("of_processes", "of_a_module", "in_this_process"):
        result.stdout.fnmatch_lines([f"*ERROR at setup of test_{name} *", refused])
    assert "this ran" not in result.stdout.str()


def test_the_markers_do_not_start_tensorflow(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys
        import pytest

        @pytest.mark.tfps_cluster(workers=3)
        @pytest.mark.tfps_one_process(ps=2)
        def test_sizes():
            assert "tfps.testing.marks" in sys.modules
            assert {"tensorflow", "keras"} & set(sys.modules) == set()
        """
    )
    pytester.runpytest_subprocess(*PLUGIN, timeout=60).assert_outcomes(passed=1)


def test_markers_are_described_and_no_option_is_added(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(*PLUGIN, "--markers")
    result.stdout.fnmatch_lines(
        [
            "@pytest.mark.tfps_cluster(workers=2, ps=1, environment=None): *",
            "@pytest.mark.tfps_one_process(workers=2, ps=1): *",
        ]
    )
    assert not hasattr(pytest_plugin, "pytest_addoption")


def test_fixtures_are_described(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(*PLUGIN, "--fixtures")
    for name in ("tfps_cluster", "tfps_cluster_factory ?module scope?", "tfps_one_process"):
        result.stdout.fnmatch_lines([f"{name} -- *"])


WRONG = """
import pytest

class TestSizes:
    pytestmark = pytest.mark.tfps_cluster(workers=0)

    def test_one(self, tfps_cluster):
        raise AssertionError("this ran")

    def test_two(self, tfps_cluster):
        raise AssertionError("this ran")

"""

WRONG_TOO = """
import pytest

@pytest.mark.tfps_one_process(2, servers=1)
def test_three(tfps_one_process):
    raise AssertionError("this ran")

@pytest.mark.parametrize("ps", [pytest.param(1, marks=pytest.mark.tfps_cluster(ps="many"))])
def test_four(ps):
    raise AssertionError("this ran")
"""


def test_wrong_markers_are_all_named_before_anything_runs(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_sizes=WRONG, test_sizes_too=WRONG_TOO)
    result = pytester.runpytest_inprocess(*PLUGIN)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        [
            "*ERROR collecting test_sizes.py *",
            "test_sizes.py::TestSizes::test_one: @pytest.mark.tfps_cluster(workers=0): "
            "workers: received 0, expected a whole number from 1",
        ]
    )
    result.stdout.fnmatch_lines(
        [
            "*ERROR collecting test_sizes_too.py *",
            "test_sizes_too.py::test_three: @pytest.mark.tfps_one_process(2, servers=1) has 2 *:",
            "  - received 2 without a name, expected workers and ps, as in "
            "@pytest.mark.tfps_one_process(workers=2, ps=1)",
            "  - servers: unknown argument; *",
            "test_sizes_too.py::test_four?1?: @pytest.mark.tfps_cluster(ps='many'): ps: "
            "received 'many', *",
        ]
    )
    assert "this ran" not in result.stdout.str()
    assert "TestSizes::test_two" not in result.stdout.str()  # it is the same mark


ONE_PROCESS = """
import pytest
import tfps
from tfps.errors import StrategyClosed

made = []

def test_the_default(tfps_one_process):
    made.append(tfps.ParameterServerStrategy(tfps_one_process.cluster_resolver))
    topology = made[0].runtime.topology
    assert (len(topology.workers), len(topology.servers)) == (2, 1)

def test_the_strategy_is_closed_after_the_test():
    with pytest.raises(StrategyClosed):
        made[0].stats()

@pytest.mark.tfps_one_process(workers=3)
class TestLater:
    def test_a_class_has_a_size(self, tfps_one_process):
        assert len(tfps_one_process.spec.jobs["worker"]) == 3

    @pytest.mark.tfps_one_process(ps=4)
    def test_the_nearest_marker_says_it(self, tfps_one_process):
        sizes = [len(tfps_one_process.spec.jobs[job]) for job in ("worker", "ps")]
        assert sizes == [2, 4]
"""


@pytest.mark.slow
def test_a_cluster_within_the_process(pytester: pytest.Pytester) -> None:
    """The last test needs most: TensorFlow has started with the first."""
    pytester.makepyfile(ONE_PROCESS)
    pytester.runpytest_subprocess(*PLUGIN, timeout=120).assert_outcomes(passed=4)


STARTED = """
import pytest
import tensorflow as tf

NUMBER = tf.constant(1)

@pytest.mark.tfps_one_process(workers=2, ps=2)
def test_too_late(tfps_one_process):
    pass

def test_sound():
    assert NUMBER == 1
"""


@pytest.mark.slow
def test_a_module_that_starts_tensorflow_is_told_to_reserve(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(STARTED)
    result = pytester.runpytest_subprocess(*PLUGIN, timeout=120)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*ConfigError: InProcessCluster: workers=2, ps=2: TensorFlow has started with 1 logical*"]
    )
    result.stdout.fnmatch_lines(
        ["*InProcessCluster.reserve(workers=2, ps=2), before anything else*"]
    )


def test_nothing_else_needs_pytest() -> None:
    """It is there for tests only: the package itself is imported without it."""
    program = (
        "import sys; sys.modules['pytest'] = None\n"
        "import tfps, tfps.testing, tfps.testing.marks, tfps.launch, tfps.cli"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
