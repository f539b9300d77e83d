"""Shipped job files and examples are found in a checkout and in an installation."""

from __future__ import annotations

import sys
import tomllib

import pytest

from tests.messages import check_message, raises
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
    assert found == bundle.find_folder("configs") / "fashion_mnist_sync.toml"


@pytest.mark.parametrize(
    ("argument", "received", "remedy"),
    [
        ("nowhere.toml", "no such file", "the path of a job file"),
        (".", "a folder", "the path of a job file"),
        ("fashion_mnist_snyc", "no such file", "did you mean fashion_mnist_sync?"),
    ],
)
def test_what_is_no_job_file_is_answered_with_the_shipped_ones(argument, received, remedy):
    with raises(ConfigError, f"{argument}: ", received=received, remedy=remedy) as raised:
        bundle.config_path(argument)
    names = sorted(path.stem for path in bundle.find_folder("configs").glob("*.toml"))
    assert str(raised.value).endswith(", ".join(names))


def test_bundled_folders_come_first(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "PACKAGE", tmp_path / "tfps")
    assert bundle.find_folder("configs") == tmp_path / "configs"
    (tmp_path / "tfps" / "bundled" / "configs").mkdir(parents=True)
    assert bundle.find_folder("configs") == tmp_path / "tfps" / "bundled" / "configs"


def test_an_unknown_example_is_a_mistake_with_the_known_ones():
    remedy = "did you mean fashion_mnist?"
    with raises(ConfigError, "example", received="'fashion_mnits'", remedy=remedy) as raised:
        bundle.find_example("fashion_mnits")
    check_message(str(raised.value), "example", remedy="./my_example")


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
    assert bundle.find_example("./own_trees").module("workload").WORKLOAD == 7
    with pytest.raises(ConfigError) as raised:
        parse({"example": "./own_trees", "model": {"depth": 0, "name": "oak", "hight": 1}})
    expected = [
        ("model.depth", "0", "a whole number"),
        ("model.hight", "unknown key", "name, depth"),
        ("model.name", "'oak'", "'tree'"),
    ]
    for problem, (key, received, remedy) in zip(
        sorted(raised.value.problems), expected, strict=True
    ):
        check_message(problem, key, received=received, remedy=remedy)


@pytest.mark.parametrize(
    ("name", "settings", "remedy"),
    [
        ("empty", None, "add settings.py and workload.py"),
        ("my-trees", OWN_SETTINGS, "letters, digits and underscores"),
        ("json", OWN_SETTINGS, "rename the folder"),
        ("own_nothing", "", "expected a subclass of tfps.config.JobConfig"),
    ],
)
def test_a_folder_that_is_no_example_is_named(tmp_path, monkeypatch, name, settings, remedy):
    monkeypatch.setattr(sys, "path", [*sys.path])
    if settings is None:
        (tmp_path / name).mkdir()
    else:
        own_example(tmp_path / name, settings)
    with pytest.raises(ConfigError) as raised:
        parse({"example": str(tmp_path / name), "training": {"epochs": 0}})
    first, second = sorted(raised.value.problems)
    check_message(first, "example: ", received=tmp_path / name, remedy=remedy)
    assert second.startswith("training.epochs: received 0")
