"""`tfps check`: all mistakes at once, and nothing started."""

from __future__ import annotations

import json
import tomllib

CLUSTER = {"chief": ["c:1"], "worker": ["w:1"], "ps": ["p:1"]}


def test_the_reference_job_has_no_mistake(tfps, tmp_path):
    result = tfps("check", "--set", "data.source=subset", "--set", "training.epochs=2")
    assert (result.returncode, result.stderr) == (0, "")
    effective = tomllib.loads(result.stdout)
    assert effective["training"]["epochs"] == 2
    assert "shipped subset (10,000 + 3,000 images)" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_mistakes_of_every_kind_are_reported_at_once(tfps, tmp_path):
    (tmp_path / "job.toml").write_text(
        '[model]\nname = "resnet"\n[data]\npath = "nowhere"\n[cluster]\nworker = 3\n'
        '[training]\nepochs = 0\noutput = "job.toml/runs"\n'
        '[training.optimizer]\nname = "sgd"\nmomentun = 1\n'
    )
    result = tfps("check", "job.toml", "--set", "epochs", TF_CONFIG=json.dumps({"cluster": {}}))
    assert result.returncode == 1
    assert result.stdout == ""
    head, *lines = result.stderr.splitlines()
    assert head == f"Error: job.toml has {len(lines)} mistakes:"
    for expected in (
        "--set: received 'epochs'; expected key=value",
        "model.name: received 'resnet'; expected one of cnn, mlp",
        "cluster.worker: unknown key; did you mean workers?",
        "training.epochs: received 0; expected a whole number, at least 1",
        "data: nowhere/train-images-idx3-ubyte.gz: there is no such file.",
        "training.optimizer.momentun: SGD has no such argument; did you mean momentum?",
        f"training.output: received 'job.toml/runs', but {tmp_path / 'job.toml'} is a file",
        "TF_CONFIG: ",
    ):
        assert any(line.startswith(f"  - {expected}") for line in lines), result.stderr


def test_an_unknown_example_is_a_mistake(tfps):
    result = tfps("check", "--set", "example=fashion")
    assert result.returncode == 1
    assert "example: received 'fashion'; did you mean fashion_mnist?" in result.stderr


def test_a_sound_tf_config_is_shown(tfps):
    task = {"type": "worker", "index": 0}
    result = tfps(
        "check",
        "--set",
        "data.source=subset",
        TF_CONFIG=json.dumps({"cluster": CLUSTER, "task": task}),
    )
    assert result.returncode == 0, result.stderr
    assert "# worker 0   w:1   (this task)" in result.stdout


def test_a_missing_file_is_one_sentence(tfps):
    result = tfps("check", "nowhere.toml")
    assert (result.returncode, result.stderr) == (1, "Error: nowhere.toml: there is no such file\n")
