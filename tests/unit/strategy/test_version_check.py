"""Versions newer than the tested ones: tried once, run with one warning, or refused."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path

import keras
import pytest
import tensorflow as tf

from tests.messages import raises
from tfps.bridge.private_places import PACKAGES
from tfps.errors import ConfigError, UnsupportedError
from tfps.strategy.version_check import VersionCheck, run_program


@pytest.fixture(autouse=True)
def _unknown_tensorflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests ended with a TensorFlow and a Keras before those of this environment."""
    monkeypatch.delenv("TFPS_UNTESTED", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    older = dataclasses.replace(PACKAGES["tensorflow"], tested=("2.15.1",))
    monkeypatch.setitem(PACKAGES, "tensorflow", older)
    same = dataclasses.replace(PACKAGES["keras"], tested=(keras.__version__,))
    monkeypatch.setitem(PACKAGES, "keras", same)


@pytest.fixture
def runs() -> list[str]:
    """The results of a program that is not run; each run takes one."""
    return []


@pytest.fixture
def start_process(runs: list[str]) -> Callable[[], VersionCheck]:
    """Make the check of another process."""
    return lambda: VersionCheck(lambda: runs.pop(0))


def test_what_passes_runs_with_one_warning_and_is_remembered(
    runs: list[str], start_process: Callable[[], VersionCheck], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="tfps")
    runs.append("")
    versions = start_process()
    versions.check()
    versions.check()
    assert caplog.messages == [f"not tested with TensorFlow {tf.__version__}; the check has passed"]
    start_process().check()
    assert runs == []


def test_a_missing_attribute_is_refused_before_the_program_runs(
    start_process: Callable[[], VersionCheck], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = dataclasses.replace(PACKAGES["keras"], attributes={"Optimizer": ("_gone",)})
    monkeypatch.setitem(PACKAGES, "keras", changed)
    with pytest.raises(ImportError, match=r"missing: .*Optimizer\._gone"):
        start_process().check()


def test_other_numbers_are_refused_with_the_nearest_pair(
    runs: list[str], start_process: Callable[[], VersionCheck]
) -> None:
    versions, failure = start_process(), "fit: weights differ by 1.0e-01 (status 1)"
    runs += [failure] * 2
    pair = f"TensorFlow {tf.__version__} with Keras {keras.__version__}"
    with raises(UnsupportedError, failure, received=pair) as caught:
        versions.check()
    assert str(caught.value).endswith("pip install 'tensorflow==2.15.1'")
    with raises(UnsupportedError, failure):  # a failure is not remembered
        versions.check()


def test_other_parameters_are_refused_at_once(
    start_process: Callable[[], VersionCheck], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keras.layers.Embedding, "call", lambda self, ids: None)
    with raises(UnsupportedError, "Embedding.call", received="(self, ids)", remedy="pip install"):
        start_process().check()  # without a result of the program


def test_the_variable_skips_the_check(
    start_process: Callable[[], VersionCheck],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("TFPS_UNTESTED", "1")
    start_process().check()
    assert "TFPS_UNTESTED=1 skips the check" in caplog.text
    monkeypatch.setenv("TFPS_UNTESTED", "true")
    with raises(ConfigError, "TFPS_UNTESTED", received="'true'", remedy="'1'"):
        start_process().check()


def test_tested_versions_pay_nothing(
    start_process: Callable[[], VersionCheck], monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = dataclasses.replace(PACKAGES["tensorflow"], tested=(tf.__version__,))
    monkeypatch.setitem(PACKAGES, "tensorflow", tested)
    monkeypatch.setattr(keras.layers.Embedding, "call", lambda self, ids: None)  # is not compared
    start_process().check()


@pytest.mark.repeats
def test_the_program_passes_here_and_reports_why_it_fails() -> None:
    assert run_program() == ""
    assert "No module named tfps.no_such_program (status 1)" in run_program("tfps.no_such_program")
