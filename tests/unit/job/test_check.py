"""One validation: what a strategy refuses, the commands that take a job file refuse before."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfps.cluster import ClusterSpec
from tfps.config import bundle, load
from tfps.errors import ConfigError
from tfps.job.check import check_job, check_settings, check_start
from tfps.job.compression import compression_of
from tfps.job.consistency import mode_of
from tfps.job.placement import placement_of
from tfps.strategy.arguments import check_arguments

SUBSET = "data.source=subset"
MLP = (SUBSET, "model.name=mlp")


def tf_config(*, workers: int, servers: int) -> str:
    hosts = {"chief": 1, "worker": workers, "ps": servers}
    cluster = {name: [f"{name}{i}:1" for i in range(count)] for name, count in hosts.items()}
    return json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})


@contextlib.contextmanager
def environment(**variables: str) -> Any:
    """Set these variables of tfps and TensorFlow, and no others."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TFPS_", "TF_CONFIG"))}
    with mock.patch.dict(os.environ, {**kept, **variables}, clear=True):
        yield


def problems_of(check: Any, *arguments: Any, **options: Any) -> tuple[str, ...]:
    try:
        check(*arguments, **options)
    except ConfigError as error:
        return error.problems
    return ()


MODES: st.SearchStrategy[list[str]] = st.one_of(
    st.just([]),
    st.builds(
        lambda backup: ["consistency.mode=synchronous", f"consistency.backup_workers={backup}"],
        st.integers(0, 4),
    ),
    st.builds(
        lambda s: ["consistency.mode=local_steps", f"consistency.period_steps={s}"],
        st.integers(1, 3),
    ),
)
RULES = st.dictionaries(st.sampled_from(["conv", "dense", "bias"]), st.integers(0, 3), max_size=2)
# Variables that a strategy or its tasks read: what they hold, and whether that can be used.
VARIABLES = st.sampled_from(
    [
        {},
        {"TFPS_TRANSPORT": "tcp"},
        {"TFPS_TRANSPORT": "grpc"},
        {"TFPS_CONNECT_TIMEOUT_S": "soon"},
        {"TFPS_PROBE_MISSES": "0", "TFPS_PROBE_PERIOD_S": "-1"},
        {"TFPS_JOB_SECRET": " "},
        {"TFPS_TLS_KEY": "key.pem"},
        {"TFPS_CHUNK_BYTES": "1 GB"},
        {"TFPS_LOGICAL_CPUS": "0"},
    ]
)


@given(
    workers=st.integers(1, 4),
    servers=st.integers(1, 3),
    mode=MODES,
    rules=RULES,
    variables=VARIABLES,
    transport=st.sampled_from(["auto", "grpc"]),
    codec=st.sampled_from(["identity", "quantize", "top_k"]),
)
def test_what_a_strategy_refuses_is_refused_before_in_its_words(
    *,
    workers: int,
    servers: int,
    mode: list[str],
    rules: dict[str, int],
    variables: dict[str, str],
    transport: str,
    codec: str,
) -> None:
    overrides = [*mode, *(f"placement.rules.{rule}={server}" for rule, server in rules.items())]
    overrides += [f"transport.name={transport}", f"compression.codec={codec}"]
    spec = ClusterSpec.from_tf_config(tf_config(workers=workers, servers=servers), source="test")
    config = load(bundle.config_path(None), overrides)
    sizes = [f"cluster.workers={workers}", f"cluster.ps={servers}"]
    with environment(**variables):
        refused = problems_of(
            check_arguments,
            cluster_resolver=spec.tf_resolver(),
            variable_partitioner=None,
            placement=placement_of(config.placement),
            consistency=mode_of(config.consistency),
            compression=compression_of(config.compression),
            transport=config.transport.name,
            batch_callbacks="auto",
        )
        found = problems_of(check_settings, None, [*overrides, *sizes])
    # A strategy that lists several mistakes names the sources of them in the sentences.
    assert len(found) == len(refused)
    for problem in refused:
        assert any(problem.endswith(sentence) for sentence in found), (problem, found)


def test_the_cluster_of_tf_config_counts_and_is_named() -> None:
    overrides = ["consistency.mode=synchronous", "consistency.backup_workers=2"]
    rules = 'placement.rules={"conv" = 2}'
    with environment(TF_CONFIG=tf_config(workers=3, servers=3)):
        assert check_settings(None, [*overrides, rules]).size.workers == 3
    with environment(TF_CONFIG=tf_config(workers=2, servers=1)):
        too_few = [*overrides, rules, "cluster.workers=3", "cluster.ps=3"]
        first, second = problems_of(check_settings, None, too_few)
    assert first.startswith(
        "consistency.backup_workers: received backup_workers=2 with 2 workers of TF_CONFIG; "
    )
    assert second.startswith(
        "placement.rules: received server 2 for 'conv' with 1 parameter servers of TF_CONFIG; "
    )


def test_each_mistake_stands_below_its_source(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text("[cluster]\nworkers = 0\n[training.optimizer]\nbeta1 = 0.9\n")
    with environment(TF_CONFIG="cluster.json", TFPS_LOGICAL_CPUS="two"):
        with pytest.raises(ConfigError) as raised:
            check_start(str(job), ["training.epochs=0", "model", f"data.path={tmp_path}"])
    assert [line.partition(": ")[0] for line in str(raised.value).splitlines()] == [
        "TF_CONFIG",
        "--set has 6 mistakes:",
        "  - received 'model', expected key=value, for example training.epochs=3",
        "  - training.epochs",
        *["  - data.path"] * 4,
        f"{job} has 2 mistakes:",
        "  - cluster.workers",
        "  - training.optimizer.beta1",
        "TFPS_LOGICAL_CPUS",
    ]


def test_a_missing_file_and_a_wrong_cluster_at_once() -> None:
    with environment(TF_CONFIG="{"), pytest.raises(ConfigError) as raised:
        check_settings("nowhere.toml")
    assert [part.source for part in raised.value.parts] == ["nowhere.toml", "TF_CONFIG"]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            ["partitioner.name=row_modulo", "partitioner.shards=100"],
            "partitioner: fashion_mnist_mlp/dense_2/bias: received shards=100 for a variable of ",
        ),
        (
            ["training.optimizer.clipnorm=1.0", "training.optimizer.clipvalue=1.0"],
            "training.optimizer: Adam does not accept these arguments: Only one of `clipnorm`",
        ),
        (
            ["training.optimizer.beta_1=x"],
            "training.optimizer: Adam does not accept these arguments: Cast string to float",
        ),
    ],
)
def test_what_only_the_model_shows(overrides: list[str], expected: str) -> None:
    import keras

    keras.utils.clear_session()  # names begin anew, as in a process of its own
    with environment():
        (problem,) = problems_of(check_job, None, [*MLP, *overrides])
    assert problem.startswith(expected)


def test_values_that_are_wrong_make_no_model() -> None:
    with environment(), mock.patch("tfps.job.check.make_forecast") as make_forecast:
        problems_of(check_job, None, [*MLP, 'placement.rules={"dense" = 9}'])
        assert not make_forecast.called
        assert problems_of(check_job, None, MLP) == ()
        assert make_forecast.called
