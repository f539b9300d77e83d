"""The strategy's arguments: every mistake at once, each by its name, before anything starts."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import tfps
from tests.messages import raises
from tfps.cluster import ClusterSpec
from tfps.compression import Cast, PushPull, Quantize, TopK
from tfps.errors import ConfigError, UnsupportedError
from tfps.strategy.arguments import check_arguments

SPEC = ClusterSpec(jobs={"chief": ("c:1",), "worker": ("w:1",), "ps": ("p:1",)})
GOOD: dict[str, Any] = {
    "cluster_resolver": SPEC.tf_resolver(),
    "variable_partitioner": None,
    "placement": None,
    "consistency": None,
    "compression": None,
    "transport": "auto",
    "batch_callbacks": "auto",
    "fault_tolerance": None,
}
WRONG = st.sampled_from(["x", "", 3, ("auto",)])


@given(wrong=st.dictionaries(st.sampled_from(sorted(GOOD)), WRONG, min_size=1))
def test_every_wrong_argument_is_named_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        check_arguments(**{**GOOD, **wrong})
    problems = getattr(raised.value, "problems", (str(raised.value),))
    received = {name: f"{name}: received {value!r}, expected " for name, value in wrong.items()}
    assert sorted(problem.split(":")[0] for problem in problems) == sorted(wrong)
    assert all(problem.startswith(received[problem.split(":")[0]]) for problem in problems)


@pytest.mark.parametrize(
    ("compression", "mode", "received", "remedy"),
    [
        (Quantize(8), tfps.LocalSteps(4, elasticity=0.5), "push=Quantize", "elasticity out"),
        (PushPull(pull=TopK(0.1)), None, "pull=TopK", "tfps.compression.Delta"),
    ],
)
def test_what_codecs_cannot_be_combined_with(
    compression: Any, mode: Any, received: str, remedy: str
) -> None:
    with raises(UnsupportedError, "compression: ", received=received, remedy=remedy):
        check_arguments(**{**GOOD, "compression": compression, "consistency": mode})


def test_one_codec_is_for_gradients() -> None:
    found = check_arguments(**{**GOOD, "compression": Quantize(8)})
    assert found.compression == PushPull(push=Quantize(8))


@pytest.fixture(autouse=True)
def _no_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFPS_TRANSPORT", raising=False)


def test_good_arguments_are_values() -> None:
    found = check_arguments(**{**GOOD, "placement": "round_robin", "consistency": "asynchronous"})
    assert found.spec.jobs == SPEC.jobs
    assert found.placement == tfps.placement.policy.RoundRobin()
    assert found.consistency == tfps.Asynchronous()
    assert found.batch_callbacks == "auto"
    assert found.transport == "auto"
    assert found.connect_timeout_s == 300


def test_the_strategy_lists_them(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"cluster": {"worker": ["w:1"], "ps": ["p"]}, "task": {"type": "chief", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    monkeypatch.setenv("TFPS_CONNECT_TIMEOUT_S", "soon")
    with pytest.raises(ConfigError) as raised:
        tfps.ParameterServerStrategy(
            variable_partitioner=4,
            compression="topk",  # type: ignore[arg-type]
            transport="tcp",
            batch_callbacks="some",
        )
    head, *lines = str(raised.value).splitlines()
    assert head == "ParameterServerStrategy has 7 mistakes:"
    assert [line.partition(": ")[0] for line in lines] == [
        "  - variable_partitioner",
        "  - compression",
        "  - transport",
        "  - batch_callbacks",
        "  - TF_CONFIG",
        "  - TF_CONFIG",
        "  - TFPS_CONNECT_TIMEOUT_S",
    ]
    assert "cluster.chief: missing" in lines[4]
    assert "cluster.ps[0]: " in lines[5]


@pytest.mark.parametrize(
    ("argument", "variable", "meant"),
    [
        ("auto", "grpc", "grpc"),
        ("auto", " direct\n", "direct"),
        ("auto", "", "auto"),
        ("direct", "grpc", "direct"),
        ("grpc", "tcp", "grpc"),
    ],
)
def test_the_environment_says_what_auto_means(
    argument: str, variable: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFPS_TRANSPORT", variable)
    assert check_arguments(**{**GOOD, "transport": argument}).transport == meant


def test_a_wrong_transport_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFPS_TRANSPORT", "tcp")
    with raises(ConfigError, "TFPS_TRANSPORT: ", received="'tcp'", remedy="'direct', 'grpc'"):
        check_arguments(**GOOD)


def test_a_local_cluster_is_no_resolver() -> None:
    wrong = object()
    with raises(
        ConfigError, "cluster_resolver: ", received=repr(wrong), remedy=".cluster_resolver)"
    ):
        check_arguments(**{**GOOD, "cluster_resolver": wrong})


def test_partitioners_of_both_kinds_are_taken() -> None:
    stock = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    for partitioner in (tfps.partitioners.Balanced(), stock, lambda shape, dtype: [1]):
        check_arguments(**{**GOOD, "variable_partitioner": partitioner})
    with raises(ConfigError, "variable_partitioner: ", received="'x'", remedy="tfps.partitioners"):
        check_arguments(**{**GOOD, "variable_partitioner": "x"})


def test_a_rule_for_a_server_that_is_not_there() -> None:
    placement = tfps.placement.ByPath({"table": 1})
    with raises(ConfigError, "'table'", received="server 1", remedy="1 parameter servers"):
        check_arguments(**{**GOOD, "placement": placement})


@pytest.mark.parametrize(
    ("wrong", "start"),
    [
        ({"consistency": tfps.Asynchronous()}, "consistency: received Asynchronous"),
        ({"consistency": tfps.Synchronous(warm_up_steps=2)}, "consistency: "),
        ({"compression": Cast()}, "compression: "),
        ({"transport": "grpc"}, "transport: "),
        ({"fault_tolerance": tfps.FaultTolerance(checkpoints="folder")}, "placement: "),
        ({"job": "night"}, "placement: "),
    ],
)
def test_what_all_reduce_cannot_be_combined_with(wrong: dict[str, Any], start: str) -> None:
    good = {**GOOD, "placement": "all_reduce", "consistency": tfps.Synchronous()}
    check_arguments(**good)
    with raises(UnsupportedError, start, received="AllReduce", remedy="leave AllReduce() out"):
        check_arguments(**{**good, **wrong})
