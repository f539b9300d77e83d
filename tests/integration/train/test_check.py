"""`tfps check`: all mistakes at once, and nothing started."""

from __future__ import annotations

import json
import tomllib

import pytest

CLUSTER = {"chief": ["c:1"], "worker": ["w:1"], "ps": ["p:1"]}


@pytest.mark.slow
def test_the_reference_job_has_no_mistake(tfps, tmp_path):
    result = tfps("check", "--set", "data.source=subset", "--set", "training.epochs=2")
    assert (result.returncode, result.stderr) == (0, "")
    effective = tomllib.loads(result.stdout)
    assert effective["training"]["epochs"] == 2
    assert "shipped subset (10,000 + 3,000 images)" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_mistakes_of_every_kind_are_reported_at_once(tfps_here, tmp_path):
    (tmp_path / "job.toml").write_text(
        '[model]\nname = "resnet"\n[data]\npath = "nowhere"\n[cluster]\nworker = 3\n'
        '[training]\nepochs = 0\noutput = "job.toml/runs"\n'
        '[training.optimizer]\nname = "sgd"\nmomentun = 1\n'
    )
    config = json.dumps({"cluster": {}})
    result = tfps_here("check", "job.toml", "--set", "epochs", TF_CONFIG=config)
    assert result.returncode == 1
    assert result.stdout == ""
    cluster, of_set, head, *lines = result.stderr.splitlines()
    assert cluster.startswith("Error: TF_CONFIG: cluster: missing")
    assert of_set.startswith("--set: received 'epochs', expected key=value")
    assert head == f"job.toml has {len(lines)} mistakes:"
    for expected in (
        "model.name: received 'resnet', expected one of cnn, mlp",
        "cluster.worker: unknown key; did you mean workers?",
        "training.epochs: received 0, expected a whole number, at least 1",
        "data.path: nowhere/train-images-idx3-ubyte.gz: received no such file, expected",
        "training.optimizer.momentun: SGD has no such argument; did you mean momentum?",
        f"training.output: received 'job.toml/runs': {tmp_path / 'job.toml'} is a file, expected",
    ):
        assert any(line.startswith(f"  - {expected}") for line in lines), result.stderr


def test_an_unknown_example_is_a_mistake(tfps_here):
    result = tfps_here("check", "--set", "example=fashion")
    assert result.returncode == 1
    assert "example: received 'fashion'; did you mean fashion_mnist?" in result.stderr


def test_a_sound_tf_config_is_shown(tfps_here):
    task = {"type": "worker", "index": 0}
    result = tfps_here(
        "check",
        "--set",
        "data.source=subset",
        TF_CONFIG=json.dumps({"cluster": CLUSTER, "task": task}),
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "# worker 0   w:1   (this task)" in lines
    note = "(cluster.workers = 2 and cluster.ps = 1 have no effect)"
    assert f"# cluster of TF_CONFIG {note}:" in lines


@pytest.mark.quick("*-train")
@pytest.mark.parametrize("command", ["check", "plan", "train"])
@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            ["consistency.mode=synchronous", "consistency.backup_workers=2"],
            "consistency.backup_workers: received backup_workers=2 with 2 workers; expected fewer",
        ),
        (
            ["placement.rules.conv=5"],
            "placement.rules: received server 5 for 'conv' with 1 parameter servers; expected 0",
        ),
    ],
    ids=["backup_workers", "placement"],
)
def test_every_command_refuses_what_the_cluster_cannot_do(
    tfps_here, tmp_path, command, overrides, expected
):
    result = tfps_here(command, *(word for each in overrides for word in ("--set", each)))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: --set: {expected}")
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_one_sentence(tfps_here):
    result = tfps_here("check", "nowhere.toml")
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("Error: nowhere.toml: no such file; expected the path")
