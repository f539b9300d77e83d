"""TensorFlow's own tests of lost tasks, from its wheel, with our pair and our tasks.

`test_fault_tolerance.py` runs it in a process of its own, because these tests leave threads and
dead connections behind. By hand: ``pytest tests/cluster/upstream/fault_tolerance_suite.py``.
"""

from __future__ import annotations

import types
from typing import Any

import tensorflow as tf

import tfps
from tests.cluster.upstream.conftest import resolver_of
from tests.cluster.upstream.tensorflow_names import fault_tolerance_test_base as suite
from tfps.launch import LocalCluster


class Tasks:
    """The tasks that the suite kills and starts again; it adds the chief to the cluster itself."""

    def __init__(self, num_workers: int, num_ps: int, **_: Any) -> None:
        self._cluster = LocalCluster(workers=num_workers, ps=num_ps)

    @property
    def cluster_resolver(self) -> tf.distribute.cluster_resolver.SimpleClusterResolver:
        return resolver_of(self._cluster)

    def kill_task(self, task_type: str, task_id: int) -> None:
        self._cluster.kill(task_type, task_id)

    def start_task(self, task_type: str, task_id: int) -> None:
        self._cluster.restart(task_type, task_id)

    def stop(self) -> None:
        self._cluster.close()


def _instead_of(module: Any, **replacements: Any) -> types.SimpleNamespace:
    """Return a copy of a module with the suite's changes; the module itself stays as it is."""
    return types.SimpleNamespace(**{**vars(module), **replacements})


suite.multi_worker_test_base = _instead_of(
    suite.multi_worker_test_base, create_multi_process_cluster=Tasks
)
suite.parameter_server_strategy_v2 = _instead_of(
    suite.parameter_server_strategy_v2, ParameterServerStrategyV2=tfps.ParameterServerStrategy
)
suite.cluster_coordinator = _instead_of(
    suite.cluster_coordinator, ClusterCoordinator=tfps.ClusterCoordinator
)


class FaultToleranceTest(suite.BaseFaultToleranceTest):
    """TensorFlow's strategy has nothing to close, so the suite leaves it to be collected."""

    def tearDown(self) -> None:
        if self.strategy is not None:
            self.strategy.close()
        super().tearDown()


class MultiWorkerFaultToleranceTest(FaultToleranceTest, tf.test.TestCase):
    """The suite with upstream's two workers and two parameter servers."""

    def setUp(self) -> None:
        super().setUp(2, 2)


class SingleWorkerFaultToleranceTest(FaultToleranceTest, tf.test.TestCase):
    """The suite with upstream's one worker and one parameter server."""

    def setUp(self) -> None:
        super().setUp(1, 1)
