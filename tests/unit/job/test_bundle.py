"""Shipped job files and examples are found in a checkout and in an installation."""

from __future__ import annotations

import pytest

from tfps.config import JobConfig, load
from tfps.errors import ConfigError
from tfps.job import bundle


def test_reference_job_is_the_default():
    assert load(bundle.config_path(None)) == JobConfig()
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
    assert str(raised.value) == (
        "example: received 'fashion_mnits'; did you mean fashion_mnist? allowed: fashion_mnist"
    )
