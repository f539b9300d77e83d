"""Job files: what is read, what is written, and what a mistake says."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.messages import check_message, raises
from tfps.config import JobConfig, load, locate_problems, parse, salvage, to_toml
from tfps.errors import ConfigError

REFERENCE = Path(__file__).parents[3] / "configs" / "fashion_mnist.toml"


def problems_of(values: dict) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as raised:
        parse(values)
    return raised.value.problems


def test_shipped_file_shows_the_defaults():
    assert load(REFERENCE) == parse({})


def test_effective_configuration_reads_back_equal(tmp_path):
    config = load(REFERENCE, ["model.name=mlp", "training.optimizer.beta_1=0.8", "data.path=x y"])
    written = tmp_path / "config.toml"
    written.write_text(to_toml(config))
    assert load(written) == config


def test_configuration_imports_no_tensorflow():
    code = (
        "import sys, tfps.config; sys.exit('tensorflow' in sys.modules or 'keras' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_all_mistakes_are_reported_at_once(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(
        'exampel = "x"\n[model]\nname = "resnet"\n[cluster]\nworkers = 0\n'
        "[training]\nlearning_rate = -1.0\n"
    )
    with pytest.raises(ConfigError) as raised:
        load(path, ["training.epochs=many", "data", "cluster.ps=[1"])
    of_set, of_file = raised.value.parts
    keys = [problem.split(":")[0] for problem in of_file.problems]
    assert of_file.source == str(path)
    assert sorted(keys) == ["cluster.workers", "exampel", "model.name", "training.learning_rate"]
    assert of_set.source == "--set"
    for received, remedy in (
        ("'data'", "key=value"),
        ("'cluster.ps=[1'", "[32, 64]"),
        ("training.epochs: received 'many'", "a whole number"),
    ):
        [problem] = [each for each in of_set.problems if received in each]
        check_message(problem, "received", received=received, remedy=remedy)
    assert len(of_set.problems) == 3


@pytest.mark.parametrize(
    ("overrides", "source"),
    [
        ([], "job.toml"),
        (["cluster.ps=2"], "job.toml"),
        (["cluster.workers=0"], "--set"),
        (["cluster = {workers = 0}"], "--set"),
        (["cluster.workers=3", "cluster.workers=0"], "--set"),
    ],
)
def test_a_mistake_names_what_it_was_read_from(tmp_path, monkeypatch, overrides, source):
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text("[cluster]\nworkers = 0\n")
    with pytest.raises(ConfigError) as raised:
        load(Path("job.toml"), overrides)
    text = str(raised.value)
    assert text.startswith(f"{source}: ")
    check_message(text, "cluster.workers", received=0, remedy="a whole number, at least 1")


@pytest.mark.parametrize(
    ("own", "source"),
    [("", "--set"), ('[placement]\nrules = {"dense" = 1}\n', "job.toml with --set")],
)
def test_a_table_that_both_fill_is_of_both(tmp_path, monkeypatch, own, source):
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(own)
    problem = "placement.rules: received server 5 for 'conv'"
    error = locate_problems([problem], path=Path("job.toml"), overrides=["placement.rules.conv=5"])
    assert str(error) == f"{source}: {problem}"


@pytest.mark.parametrize(
    ("values", "key", "received", "remedy"),
    [
        ({"cluster": {"wrokers": 4}}, "cluster.wrokers", "unknown key", "workers, ps, max_workers"),
        ({"cluster": {"wrokers": 4}}, "cluster.wrokers", "unknown key", "did you mean workers?"),
        ({"batch_size": 4}, "batch_size", "unknown key", "did you mean data.batch_size?"),
        ({"batch_size": 4}, "batch_size", "unknown key", "example, job, model, data, cluster"),
        ({"model": {"name": "resnet"}}, "model.name", "'resnet'", "one of cnn, mlp"),
        ({"training": {"epochs": 0}}, "training.epochs", "0", "a whole number, at least 1"),
        ({"training": {"epochs": "3"}}, "training.epochs", "'3'", "a whole number, at least 1"),
        ({"cluster": {"workers": True}}, "cluster.workers", "True", "a whole number, at least 1"),
        (
            {"model": {"cnn": {"dropout": 1.0}}},
            "model.cnn.dropout",
            "1.0",
            "a number, at least 0 and below 1",
        ),
        (
            {"model": {"cnn": {"filters": [32, "a"]}}},
            "model.cnn.filters.1",
            "'a'",
            "a whole number, at least 1",
        ),
        (
            {"model": {"mlp": {"hidden_units": []}}},
            "model.mlp.hidden_units",
            "[]",
            "an array with at least 1 item, each a whole number, at least 1",
        ),
        (
            {"training": {"learning_rate": float("nan")}},
            "training.learning_rate",
            "nan",
            "a number, above 0",
        ),
        ({"training": {"output": ""}}, "training.output", "''", "a string, not empty"),
        ({"cluster": 3}, "cluster", "3", "a section"),
        ({"data": {"source": "subset", "path": "x"}}, "data.path", "'x'", "remove one of the two"),
        (
            {"training": {"optimizer": {"learning_rate": 0.1}}},
            "training.optimizer.learning_rate",
            "0.1",
            "set training.learning_rate",
        ),
    ],
)
def test_mistake_names_key_received_and_allowed(values, key, received, remedy):
    (problem,) = problems_of(values)
    assert problem.startswith(f"{key}: ")
    check_message(problem, key, received=received, remedy=remedy)


def test_missing_and_broken_files_are_named(tmp_path):
    with raises(ConfigError, "nowhere.toml", received="no such file", remedy="check the path"):
        load(tmp_path / "nowhere.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[model\n")
    with raises(ConfigError, "broken.toml", received="invalid TOML"):
        load(broken)
    with raises(ConfigError, str(tmp_path), received="Is a directory", remedy="check the path"):
        load(tmp_path)


def test_salvage_keeps_what_is_right(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text('[data]\npath = "x"\n[training]\nepochs = 0\nseed = 7\nsed = 1\n')
    config, wrong = salvage(path, ["model.cnn.filters=[0, 'a']"])
    assert config.data.path == "x"
    assert config.training.seed == 7
    assert config.training.epochs == parse({}).training.epochs
    assert wrong == {"training.epochs", "training.sed", "model.cnn.filters"}


def test_salvage_of_no_toml_trusts_nothing(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text("[")
    assert salvage(path) == (JobConfig(), frozenset({""}))


def test_sizes_are_those_of_the_chosen_model():
    values = tomllib.loads('[model]\nname = "mlp"\n[model.mlp]\nhidden_units = [8]\n')
    model: Any = parse(values).model
    assert model.sizes() == {"hidden_units": (8,), "dropout": 0.2}
