"""`ClusterSpec`: what is accepted, in which order, and what every mistake is called."""

from __future__ import annotations

import copy
import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.messages import check_message, raises
from tfps.cluster import JOB_ORDER, ClusterSpec
from tfps.errors import ConfigError

HOSTS = st.one_of(
    st.from_regex(r"[a-z][a-z0-9-]{0,12}(\.[a-z]{1,6}){0,2}", fullmatch=True),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(lambda address: f"[{address}]"),
)
ADDRESSES = st.builds("{}:{}".format, HOSTS, st.integers(1, 65535))


@st.composite
def tf_configs(draw: st.DrawFn) -> dict[str, Any]:
    """Valid values of TF_CONFIG, with their keys in any order."""
    addresses = draw(st.lists(ADDRESSES, min_size=3, max_size=9, unique_by=str.lower))
    workers = draw(st.integers(1, len(addresses) - 2))
    jobs = {
        "chief": addresses[:1],
        "worker": addresses[1 : 1 + workers],
        "ps": addresses[1 + workers :],
    }
    task_type = draw(st.sampled_from((*JOB_ORDER, "evaluator")))
    index = draw(st.integers(0, len(jobs.get(task_type, [0])) - 1))
    config = {
        "cluster": {name: jobs[name] for name in draw(st.permutations(list(jobs)))},
        "task": {"type": task_type, "index": draw(st.sampled_from([index, str(index)]))},
        "environment": "cloud",
    }
    return {name: config[name] for name in draw(st.permutations(list(config)))}


@given(tf_configs())
def test_order_of_keys_never_matters(config: dict[str, Any]) -> None:
    spec = ClusterSpec.from_tf_config(json.dumps(config))
    assert tuple(spec.jobs) == JOB_ORDER
    assert {name: list(value) for name, value in spec.jobs.items()} == config["cluster"]
    assert (spec.task_type, spec.task_index) == (
        config["task"]["type"],
        int(config["task"]["index"]),
    )
    in_order = {name: config["cluster"][name] for name in JOB_ORDER}
    assert spec == ClusterSpec.from_tf_config({**config, "cluster": in_order})
    assert hash(spec) == hash(ClusterSpec.from_tf_config({**config, "cluster": in_order}))


@given(tf_configs())
def test_a_spec_survives_its_own_tf_config(config: dict[str, Any]) -> None:
    spec = ClusterSpec.from_tf_config(config)
    assert spec.task_type is not None
    assert spec.task_index is not None
    written = spec.tf_config(spec.task_type, spec.task_index)
    assert list(written["cluster"]) == list(JOB_ORDER)
    assert ClusterSpec.from_tf_config(json.dumps(written)) == spec


@given(tf_configs())
def test_the_table_has_every_task_once(config: dict[str, Any]) -> None:
    spec = ClusterSpec.from_tf_config(config)
    lines = str(spec).splitlines()[1:]
    for task_type, index, address in spec.tasks():
        assert sum(line.split()[:3] == [task_type, str(index), address] for line in lines) == 1
    assert sum("(this task)" in line for line in lines) == 1


def _replace(job: str, index: int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        config["cluster"][job][index] = value

    return change


def _set(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        target = config
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value

    return change


def _remove(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        target = config
        for key in path[:-1]:
            target = target[key]
        del target[path[-1]]

    return change


VALID: dict[str, Any] = {
    "cluster": {
        "chief": ["chief:1"],
        "worker": ["w0:1", "w1:1", "w2:1", "w3:1", "w4:1"],
        "ps": ["p0:1", "p1:1", "p2:1", "p3:1"],
    },
    "task": {"type": "worker", "index": 0},
}

# Mistakes that can be made together: each with the key that its message has to start with, with
# the received value and with a word of the remedy.
MISTAKES = {
    "unknown type": (_set("cluster", "gpu", value=["x:1"]), "cluster.gpu:", "", "chief, worker"),
    "evaluator": (
        _set("cluster", "evaluator", value=["e:1"]),
        "cluster.evaluator:",
        "",
        '"task": {"type": "evaluator"',
    ),
    "no chief": (_remove("cluster", "chief"), "cluster.chief:", "missing", "Add"),
    "duplicate": (_replace("worker", 1, "p0:1"), "cluster.", "'p0:1'", "its own"),
    "port is no number": (
        _replace("worker", 2, "w2:http"),
        "cluster.worker[2]:",
        "'w2:http'",
        "w2:2",
    ),
    "port out of range": (_replace("ps", 1, "p1:70000"), "cluster.ps[1]:", "'p1:70000'", "65535"),
    "no port": (_replace("worker", 3, "w3"), "cluster.worker[3]:", "'w3'", "w3:2222"),
    "IPv6 without brackets": (
        _replace("ps", 2, "fe80::1:2222"),
        "cluster.ps[2]:",
        "'fe80::1:2222'",
        "[address]:port",
    ),
    "no text": (_replace("worker", 4, 5), "cluster.worker[4]:", "5", "host:port"),
    "URL": (_replace("ps", 3, "grpc://p3:1"), "cluster.ps[3]:", "'grpc://p3:1'", "only host:port"),
    "unknown role": (_set("task", "type", value="master"), "task.type:", "master", "chief, worker"),
    "index is no number": (
        _set("task", "index", value="first"),
        "task.index:",
        "'first'",
        "whole number",
    ),
}


@given(st.sets(st.sampled_from(sorted(MISTAKES)), min_size=1))
def test_all_mistakes_are_reported_at_once(names: set[str]) -> None:
    config = copy.deepcopy(VALID)
    for name in names:
        MISTAKES[name][0](config)
    with pytest.raises(ConfigError) as raised:
        ClusterSpec.from_tf_config(json.dumps(config))
    problems = raised.value.problems
    assert len(problems) == len(names)
    for name in names:
        _, key, received, remedy = MISTAKES[name]
        [problem] = [each for each in problems if each.startswith(key) and received in each]
        check_message(problem, key, received=received, remedy=remedy)
    assert "TF_CONFIG" in str(raised.value)


@pytest.mark.parametrize(
    ("change", "key", "received", "remedy"),
    [
        (_set("task", "index", value=5), "task.index:", "5", "at most 4"),
        (_set("task", "index", value=-1), "task.index:", "-1", "whole number"),
        (_set("task", "index", value=True), "task.index:", "True", "whole number"),
        (_remove("task", "index"), "task.index:", "missing", "whole number"),
        (_remove("task", "type"), "task.type:", "missing", "chief, worker"),
        (_set("task", value="worker"), "task:", "'worker'", "an object"),
        (_set("cluster", "chief", value=["a:1", "b:1"]), "cluster.chief:", "2 addresses", "one"),
        (_set("cluster", "chief", value="a:1"), "cluster.chief:", "'a:1'", "list"),
        (_set("cluster", "ps", value=[]), "cluster.ps:", "empty", "at least one ps"),
        (_remove("cluster", "worker"), "cluster.worker:", "missing", "at least one worker"),
        (_remove("cluster"), "cluster:", "missing", "an object"),
        (_replace("chief", 0, "[::1]"), "cluster.chief[0]:", "'[::1]'", "[::1]:2222"),
        (_replace("chief", 0, "[1.2.3.4]:5"), "cluster.chief[0]:", "'[1.2.3.4]:5'", "IPv6"),
        (_replace("chief", 0, ":5"), "cluster.chief[0]:", "':5'", "host:port"),
        (_replace("chief", 0, "a b:5"), "cluster.chief[0]:", "'a b:5'", "white space"),
        (_replace("chief", 0, "a:0"), "cluster.chief[0]:", "'a:0'", "65535"),
    ],
)
def test_a_single_mistake(
    change: Callable[[dict[str, Any]], None], key: str, received: str, remedy: str
) -> None:
    config = copy.deepcopy(VALID)
    change(config)
    with pytest.raises(ConfigError) as raised:
        ClusterSpec.from_tf_config(config)
    [problem] = raised.value.problems
    assert problem.startswith(key)
    check_message(problem, key, received=received, remedy=remedy)


@pytest.mark.parametrize("name", ["gone.json", "my cluster"])
def test_the_name_of_a_file_is_answered_with_how_to_read_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if path.suffix != ".json":
        path.write_text(json.dumps(VALID))
    with pytest.raises(ConfigError) as raised:
        ClusterSpec.from_environment({"TF_CONFIG": f"{path}\n"})
    command = f'TF_CONFIG="$(cat {shlex.quote(str(path))})"'
    check_message(str(raised.value), "TF_CONFIG", received="JSON", remedy=command)
    with pytest.raises(ConfigError) as raised:
        ClusterSpec.from_environment({"TF_CONFIG": "{"})
    assert "cat" not in str(raised.value)


@pytest.mark.parametrize("text", ["{", "[]", "3", '"x"'])
def test_what_is_no_json_object(text: str) -> None:
    with raises(ConfigError, "TF_CONFIG", received="received", remedy="cluster"):
        ClusterSpec.from_tf_config(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["cluster", "task", "type", "ps"]), inner)
        ),
    )
)
def test_any_other_json_is_a_config_error(value: Any) -> None:
    with pytest.raises(ConfigError):
        ClusterSpec.from_tf_config(json.dumps(value))


def test_the_environment_has_to_name_the_task() -> None:
    with raises(ConfigError, "TF_CONFIG", received="not set", remedy="tfps run"):
        ClusterSpec.from_environment({})
    text = json.dumps({"cluster": VALID["cluster"]})
    assert ClusterSpec.from_tf_config(text).task_type is None
    with raises(ConfigError, "task: missing", remedy='"task": {'):
        ClusterSpec.from_environment({"TF_CONFIG": text})
    assert ClusterSpec.from_environment({"TF_CONFIG": json.dumps(VALID)}).task_type == "worker"


class Resolver:
    """Stands for any TensorFlow cluster resolver."""

    def __init__(self, jobs: dict[str, Any], task_type: str | None, task_id: int | None) -> None:
        self.task_type, self.task_id, self._jobs = task_type, task_id, jobs

    def cluster_spec(self) -> Resolver:
        return self

    def as_dict(self) -> dict[str, Any]:
        return self._jobs


def test_from_resolver() -> None:
    assert ClusterSpec.from_resolver(Resolver(VALID["cluster"], "ps", 3)).task_index == 3
    spec = ClusterSpec.from_resolver(Resolver(VALID["cluster"], "", None))
    assert (spec.task_type, spec.task_index) == ("chief", 0)
    with raises(ConfigError, "Resolver: cluster.worker:", received={1: "w:1"}, remedy="list"):
        ClusterSpec.from_resolver(Resolver({**VALID["cluster"], "worker": {1: "w:1"}}, None, None))


def test_a_resolver_need_not_list_the_chief() -> None:
    jobs = {name: VALID["cluster"][name] for name in ("worker", "ps")}
    spec = ClusterSpec.from_resolver(Resolver(jobs, "", None))
    assert (spec.task_type, spec.task_index) == ("chief", 0)
    assert spec.address("chief", 0).startswith("localhost:")
    assert "chief" not in jobs
    with raises(ConfigError, "Resolver: cluster.chief: missing", remedy="Add the address"):
        ClusterSpec.from_resolver(Resolver(jobs, "chief", 0))


# What TensorFlow's strategy says; programs and tests that were written for it look for it.
TENSORFLOWS_WORDS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "other job": (_set("cluster", "gpu", value=["x:1"]), "Disallowed task type found in"),
    "other task": (_set("task", "type", value="foobar"), "Unrecognized task_type: foobar"),
    "chiefs": (
        _set("cluster", "chief", value=["a:1", "b:1", "c:1"]),
        "There must be at most one 'chief' job.",
    ),
    "no worker": (_remove("cluster", "worker"), "There must be at least one worker"),
    "empty worker": (_set("cluster", "worker", value=[]), "There must be at least one worker"),
    "no ps": (_remove("cluster", "ps"), "There must be at least one ps"),
}


@pytest.mark.parametrize("name", TENSORFLOWS_WORDS)
def test_mistakes_are_said_in_tensorflows_words(name: str) -> None:
    config = copy.deepcopy(VALID)
    change, words = TENSORFLOWS_WORDS[name]
    change(config)
    if config["task"]["type"] in ("worker", "ps"):
        config["task"] = {"type": "chief", "index": 0}
    task = config["task"]
    with raises(ValueError, words):
        ClusterSpec.from_resolver(Resolver(config["cluster"], task["type"], task["index"]))


def test_address() -> None:
    spec = ClusterSpec.from_tf_config(VALID)
    assert spec.address("ps", 2) == "p2:1"
    assert [spec.count(name) for name in ("chief", "worker", "ps", "evaluator")] == [1, 5, 4, 0]
    for task_type, index, received in (
        ("ps", 4, 4),
        ("gpu", 0, "gpu"),
        ("evaluator", 0, "evaluator"),
    ):
        with raises(ConfigError, "task.", received=received):
            spec.address(task_type, index)


def test_no_tensorflow_at_import() -> None:
    code = "import sys, tfps.cluster, tfps.launch, tfps.cli; print('tensorflow' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n"


def test_a_task_may_be_somewhere_else() -> None:
    spec = ClusterSpec(
        jobs={"chief": ("c:1",), "worker": ("w:1",), "ps": ("p:1", "p:2")},
        task_type="chief",
        task_index=0,
    )
    moved = spec.with_address("ps", 1, "q:2")
    assert moved.jobs == {**spec.jobs, "ps": ("p:1", "q:2")}
    assert (moved.task_type, moved.task_index) == ("chief", 0)
    with raises(ConfigError, "cluster.ps[1]", received="'w:1'", remedy="cluster.worker[0]"):
        spec.with_address("ps", 1, "w:1")
    with raises(ConfigError, "task.index", received=2, remedy="at most 1"):
        spec.with_address("ps", 2, "q:2")
