"""Job files: what is read, what is written, and what a mistake says."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tfps.config import JobConfig, blamed, load, parse, salvage, to_toml
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
    found = {
        part.source: {problem.split(":")[0] for problem in part.problems}
        for part in raised.value.parts
    }
    assert found == {
        "--set": {
            "received 'data'; expected key=value, for example training.epochs=3",
            "received 'cluster.ps=[1', whose value is no TOML (Unclosed array (at end of "
            "document)); expected a number, true or false, a word, a text in quotes or an array "
            "such as [32, 64]",
            "training.epochs",
        },
        str(path): {"exampel", "model.name", "cluster.workers", "training.learning_rate"},
    }


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
    assert str(raised.value) == (
        f"{source}: cluster.workers: received 0; expected a whole number, at least 1"
    )


@pytest.mark.parametrize(
    ("own", "source"),
    [("", "--set"), ('[placement]\nrules = {"dense" = 1}\n', "job.toml with --set")],
)
def test_a_table_that_both_fill_is_of_both(tmp_path, monkeypatch, own, source):
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(own)
    problem = "placement.rules: received server 5 for 'conv'"
    error = blamed([problem], path=Path("job.toml"), overrides=["placement.rules.conv=5"])
    assert str(error) == f"{source}: {problem}"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"cluster": {"wrokers": 4}},
            "cluster.wrokers: unknown key; did you mean workers? "
            "allowed: workers, ps, max_workers, connect_timeout_s",
        ),
        (
            {"batch_size": 4},
            "batch_size: unknown key; did you mean data.batch_size? "
            "allowed: example, job, model, data, cluster, training, consistency, partitioner, "
            "placement, compression, transport, restarts, recovery",
        ),
        ({"model": {"name": "resnet"}}, "model.name: received 'resnet'; expected one of cnn, mlp"),
        (
            {"training": {"epochs": 0}},
            "training.epochs: received 0; expected a whole number, at least 1",
        ),
        (
            {"training": {"epochs": "3"}},
            "training.epochs: received '3'; expected a whole number, at least 1",
        ),
        (
            {"cluster": {"workers": True}},
            "cluster.workers: received True; expected a whole number, at least 1",
        ),
        (
            {"model": {"cnn": {"dropout": 1.0}}},
            "model.cnn.dropout: received 1.0; expected a number, at least 0 and below 1",
        ),
        (
            {"model": {"cnn": {"filters": [32, "a"]}}},
            "model.cnn.filters.1: received 'a'; expected a whole number, at least 1",
        ),
        (
            {"model": {"mlp": {"hidden_units": []}}},
            "model.mlp.hidden_units: received []; expected an array with at least 1 item, "
            "each a whole number, at least 1",
        ),
        (
            {"training": {"learning_rate": float("nan")}},
            "training.learning_rate: received nan; expected a number, above 0",
        ),
        ({"training": {"output": ""}}, "training.output: received ''; expected a text, not empty"),
        ({"cluster": 3}, "cluster: received 3; expected a section"),
        (
            {"data": {"source": "subset", "path": "x"}},
            "data.path: received 'x', but data.source = 'subset' reads the files that ship with "
            "tfps; remove one of the two",
        ),
        (
            {"training": {"optimizer": {"learning_rate": 0.1}}},
            "training.optimizer.learning_rate: received 0.1; it belongs to the section above: set "
            "training.learning_rate",
        ),
    ],
)
def test_mistake_names_key_received_and_allowed(values, expected):
    assert problems_of(values) == (expected,)


def test_missing_and_broken_files_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.toml: there is no such file"):
        load(tmp_path / "nowhere.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[model\n")
    with pytest.raises(ConfigError, match=r"broken\.toml: is no TOML"):
        load(broken)
    with pytest.raises(ConfigError, match="cannot be read"):
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
