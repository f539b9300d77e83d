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
