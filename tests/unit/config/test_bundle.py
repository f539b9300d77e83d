"""Shipped job files and examples are found in a checkout and in an installation."""

from __future__ import annotations

import sys
import tomllib

import pytest

from tfps.config import bundle, load, parse, to_toml
from tfps.errors import ConfigError


def test_reference_job_is_the_default():
    assert load(bundle.config_path(None)) == parse({})
    assert bundle.config_path("fashion_mnist") == bundle.config_path(None)


def test_a_file_of_the_users_comes_before_a_shipped_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fashion_mnist").write_text("")
    assert bundle.config_path("fashion_mnist").read_text() == ""


@pytest.mark.parametrize("folder", ["", "configs/", "./configs/"])
@pytest.mark.parametrize("suffix", ["", ".toml"])
def test_shipped_jobs_are_found_from_anywhere(tmp_path, monkeypatch, folder, suffix):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fashion_mnist_sync").mkdir()  # a folder of results, such as of `--log-dir`
    found = bundle.config_path(f"{folder}fashion_mnist_sync{suffix}")
    assert found == bundle.folder("configs") / "fashion_mnist_sync.toml"


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("nowhere.toml", "nowhere.toml: there is no such file; expected the path of a job file"),
        (".", ".: is a folder; expected "),
        (
            "fashion_mnist_snyc",
            "fashion_mnist_snyc: there is no such file; did you mean fashion_mnist_sync? expected ",
        ),
    ],
)
def test_what_is_no_job_file_is_answered_with_the_shipped_ones(argument, expected):
    with pytest.raises(ConfigError) as raised:
        bundle.config_path(argument)
    assert str(raised.value).startswith(expected)
    names = sorted(path.stem for path in bundle.folder("configs").glob("*.toml"))
    assert str(raised.value).endswith(f"the name of a shipped one: {', '.join(names)}")


def test_bundled_folders_come_first(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "PACKAGE", tmp_path / "tfps")
    assert bundle.folder("configs") == tmp_path / "configs"
    (tmp_path / "tfps" / "bundled" / "configs").mkdir(parents=True)
    assert bundle.folder("configs") == tmp_path / "tfps" / "bundled" / "configs"


def test_an_unknown_example_is_a_mistake_with_the_known_ones():
    with pytest.raises(ConfigError) as raised:
        bundle.example("fashion_mnits")
    assert str(raised.value).startswith(
        "example: received 'fashion_mnits'; did you mean fashion_mnist? allowed: fashion_mnist"
    )
    assert str(raised.value).endswith("or the path of a folder, as ./my_example")


OWN_SETTINGS = """
from typing import Literal
from tfps.config.schema import Count, JobConfig, ModelSection, Section

class TreeSection(ModelSection):
    model_config = Section.model_config
    name: Literal["tree"] = "tree"
    depth: Count = 3

class TreeJob(JobConfig):
    model: TreeSection = TreeSection()

JOB = TreeJob
"""


def own_example(folder, settings=OWN_SETTINGS):
    folder.mkdir()
    (folder / "settings.py").write_text(settings)
    (folder / "workload.py").write_text("WORKLOAD = 7\n")
    return folder


def test_a_folder_of_the_users_is_an_example(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    own_example(tmp_path / "own_trees")
    monkeypatch.chdir(tmp_path)
    values = {"example": "./own_trees", "model": {"depth": 5}}
    config = parse(values)
    assert (config.model.name, config.model.depth) == ("tree", 5)  # type: ignore[attr-defined]
    assert parse(tomllib.loads(to_toml(config))) == config
    assert bundle.example("./own_trees").module("workload").WORKLOAD == 7
    with pytest.raises(ConfigError) as raised:
        parse({"example": "./own_trees", "model": {"depth": 0, "name": "oak", "hight": 1}})
    assert sorted(raised.value.problems) == [
        "model.depth: received 0; expected a whole number, at least 1",
        "model.hight: unknown key; allowed: name, depth",
        "model.name: received 'oak'; expected 'tree'",
    ]


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("empty", None, "has no settings.py and no workload.py; expected a folder with both"),
        ("my-trees", OWN_SETTINGS, "expected a folder whose name Python can import"),
        ("json", OWN_SETTINGS, "but Python imports json from"),
        ("own_nothing", "", "has JOB = None; expected a subclass of tfps.config.JobConfig"),
    ],
)
def test_a_folder_that_is_no_example_is_named(tmp_path, monkeypatch, name, settings, expected):
    monkeypatch.setattr(sys, "path", [*sys.path])
    if settings is None:
        (tmp_path / name).mkdir()
    else:
        own_example(tmp_path / name, settings)
    with pytest.raises(ConfigError) as raised:
        parse({"example": str(tmp_path / name), "training": {"epochs": 0}})
    first, second = sorted(raised.value.problems)
    assert first.startswith("example: ")
    assert expected in first
    assert second.startswith("training.epochs: received 0")
