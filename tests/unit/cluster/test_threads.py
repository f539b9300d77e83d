"""No task may have fewer threads than peers that can keep one waiting."""

from __future__ import annotations

import os

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tfps.cluster import ClusterSpec, data_connections, inter_op_threads, prepare_process
from tfps.runtime.worker.executor_choice import MAX_DEPTH


@given(st.integers(1, 200), st.integers(1, 200))
def test_threads(workers: int, servers: int) -> None:
    spec = ClusterSpec(
        jobs={
            "chief": ("c:1",),
            "worker": tuple(f"w{index}:1" for index in range(workers)),
            "ps": tuple(f"p{index}:1" for index in range(servers)),
        }
    )
    assert inter_op_threads(spec, "ps") >= data_connections(spec) + 2
    assert data_connections(spec) > workers
    assert inter_op_threads(spec, "worker") >= servers + 2
    # Those of a step on one thread, and two for the input and the coordinator.
    assert inter_op_threads(spec, "worker") >= 1 + MAX_DEPTH + 2


def test_a_worker_has_no_more_threads_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ClusterSpec(jobs={"chief": ("c:1",), "worker": ("w:1",), "ps": ("p:1",)})
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert inter_op_threads(spec, "worker") < inter_op_threads(spec, "chief")
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert inter_op_threads(spec, "worker") == 64


def test_harmful_variables_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_FAIL_FAST", "false")
    monkeypatch.setenv("TF_PSS_ENABLE_COORDINATION_SERVICE", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    prepare_process("worker")
    assert "GRPC_FAIL_FAST" not in os.environ
    assert "TF_PSS_ENABLE_COORDINATION_SERVICE" not in os.environ
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    prepare_process("ps")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"  # the user's choice
