"""`tfps plan`: what lies where, before anything starts."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from tests.integration.project import pages
from tfps.cli import main

CLUSTER = {"chief": ["c:1"], "worker": ["w:1"], "ps": ["p:1", "p:2", "p:3"]}
SUBSET = ("--set", "data.source=subset")


@pytest.mark.slow
def test_a_plan_names_every_variable_and_starts_nothing(tfps, tmp_path):
    result = tfps("plan", *SUBSET, "--set", "cluster.ps=2", "--set", "model.name=mlp")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    kernels = [line.split()[1] for line in lines if "/kernel " in line]
    assert kernels == ["784x256", "256x128", "128x10"]
    assert lines[-1].startswith("imbalance (largest / mean): bytes ")
    assert list(tmp_path.iterdir()) == []


def test_servers_are_those_of_tf_config_and_rules_are_followed(tfps_here):
    task = {"type": "worker", "index": 0}
    rules = 'placement.rules={"kernel" = 2, "nowhere" = 0}'
    config = json.dumps({"cluster": CLUSTER, "task": task})
    result = tfps_here("plan", *SUBSET, "--set", rules, TF_CONFIG=config)
    assert result.returncode == 0, result.stderr
    kernels = [line.split() for line in result.stdout.splitlines() if "/kernel " in line]
    assert len(kernels) == 4
    assert {line[2] for line in kernels} == {"2"}
    assert "placement.rules: received 'nowhere'" in result.stdout
    [text] = [line for line in result.stdout.splitlines() if line.startswith("checkpoints: ")]
    assert text.startswith("checkpoints: up to 3 of ")
    result = tfps_here("plan", *SUBSET, "--set", "recovery.every_s=0", TF_CONFIG=config)
    assert "checkpoints: " not in result.stdout


def test_a_server_that_would_run_out_of_memory(tfps_here):
    result = tfps_here("plan", *SUBSET, "--ps-memory-gib", "0.25")
    assert result.returncode == 1
    assert "parameter server 0: received 0.25 GiB, expected at least 0.5" in result.stderr


def test_mistakes_are_those_of_check(tfps_here):
    mistakes = ("--set", 'placement.rules={"(" = 5}', "--set", "cluster.ps=0")
    result = tfps_here("plan", *SUBSET, *mistakes)
    assert result.returncode == 1
    assert "cluster.ps: received 0, expected a whole number, at least 1" in result.stderr
    assert "placement.rules: '(': received an invalid pattern" in result.stderr
    result = tfps_here("plan", *SUBSET, "--set", 'placement.rules={"conv" = 1}')
    assert result.returncode == 1
    assert "received server 1 for 'conv' with 1 parameter servers; expected 0 to 0" in result.stderr


def test_a_plan_of_shards(tfps_here):
    result = tfps_here(
        "plan", *SUBSET, "--set", "cluster.ps=2", "--set", "partitioner.name=balanced",
        "--set", 'partitioner.rules={"dense/kernel" = "row_shuffle", "nowhere" = "whole"}',
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    shards = [line.split() for line in result.stdout.splitlines() if "dense/kernel/" in line]
    assert sorted(line[2] for line in shards) == ["0", "1"]
    assert len({line[1] for line in shards}) == 1
    assert "partitioner.rules: received 'nowhere'" in result.stdout
    result = tfps_here("plan", *SUBSET, "--set", 'partitioner.rules={"(" = "whole"}')
    assert result.returncode == 1
    assert "partitioner.rules: '(': received an invalid pattern" in result.stderr


def test_strategies_are_compared_as_the_page_shows(tfps_here, tmp_path):
    (sample,) = pages.samples("plan compare")
    options = ("--worker-memory-gib", "2", "--ps-memory-gib", "4")
    result = tfps_here("plan", "--compare", "recommender", *options)
    assert (result.returncode, result.stderr) == (0, "")
    assert pages.not_shown(sample.text, result.stdout) == []
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "Take tfps asynchronous" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_where_no_strategy_fits(tfps_here):
    little = ("--worker-memory-gib", "0.5", "--ps-memory-gib", "0.5")
    result = tfps_here("plan", "--compare", *SUBSET, *little)
    assert result.returncode == 1
    rows = result.stdout.splitlines()[1:]
    assert [row for row in rows if not re.search(r" no  ?\S| no +$", row)] == []
    assert "none fits; tfps asynchronous, bounded needs least, 538.6 MB" in result.stderr


def test_amounts_that_are_none():
    for option, said in (
        (("--ps-memory-gib", "0"), "Invalid value for '--ps-memory-gib': 0.0 is not in the range"),
        (("--worker-memory-gib", "-1"), "Invalid value for '--worker-memory-gib': -1.0 is not in"),
        (("--worker-memory-gib", "much"), "'much' is not a valid float"),
        (("--step-ms", "nan"), "Invalid value for '--step-ms': received nan"),
    ):
        result = CliRunner().invoke(main, ["plan", "--compare", *option])
        assert result.exit_code == 2
        assert said in result.output
    result = CliRunner().invoke(main, ["plan", "--step-ms", "3"])
    assert result.exit_code == 2
    assert "--worker-memory-gib, --step-ms: received without --compare" in result.output
