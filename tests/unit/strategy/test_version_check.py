"""Versions newer than the tested ones: tried once, run with one warning, or refused."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import keras
import pytest
import tensorflow as tf

from tfps.bridge.private_places import PACKAGES
from tfps.errors import ConfigError, UnsupportedError
from tfps.strategy import version_check
from tfps.strategy.version_check import check_newer_versions


@pytest.fixture(autouse=True)
def _unknown_tensorflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests ended with a TensorFlow and a Keras before those of this environment."""
    monkeypatch.delenv("TFPS_UNTESTED", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(version_check, "_accepted", set())
    older = dataclasses.replace(PACKAGES["tensorflow"], tested=("2.15.1",))
    monkeypatch.setitem(PACKAGES, "tensorflow", older)
    same = dataclasses.replace(PACKAGES["keras"], tested=(keras.__version__,))
    monkeypatch.setitem(PACKAGES, "keras", same)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the program by a list of its replies; each run takes one."""
    replies: list[str] = []
    monkeypatch.setattr(version_check, "_run", lambda: replies.pop(0))
    return replies


def test_what_passes_runs_with_one_warning_and_is_remembered(
    runs: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="tfps")
    runs.append("")
    check_newer_versions()
    check_newer_versions()
    assert caplog.messages == [f"not tested with TensorFlow {tf.__version__}; the check has passed"]
    monkeypatch.setattr(version_check, "_accepted", set())  # another process
    check_newer_versions()
    assert runs == []


def test_other_numbers_are_refused_with_the_nearest_pair(runs: list[str]) -> None:
    runs += ["fit: weights differ by 1.0e-01 (status 1)"] * 2
    with pytest.raises(UnsupportedError) as caught:
        check_newer_versions()
    message = str(caught.value)
    assert f"received TensorFlow {tf.__version__} with Keras {keras.__version__}" in message
    assert "The check failed: fit: weights differ by 1.0e-01 (status 1)." in message
    assert message.endswith("pip install 'tensorflow==2.15.1'")
    with pytest.raises(UnsupportedError, match="The check failed"):  # a failure is not remembered
        check_newer_versions()


def test_other_parameters_are_refused_at_once(
    runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keras.layers.Embedding, "call", lambda self, ids: None)
    with pytest.raises(UnsupportedError, match=r"Embedding\.call\(self, ids\), expected"):
        check_newer_versions()
    assert runs == []


def test_the_variable_skips_the_check(
    runs: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TFPS_UNTESTED", "1")
    check_newer_versions()
    assert "TFPS_UNTESTED=1 skips the check" in caplog.text
    monkeypatch.setenv("TFPS_UNTESTED", "true")
    monkeypatch.setattr(version_check, "_accepted", set())
    with pytest.raises(ConfigError, match="TFPS_UNTESTED: received 'true', expected '1'"):
        check_newer_versions()


def test_tested_versions_pay_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tested = dataclasses.replace(PACKAGES["tensorflow"], tested=(tf.__version__,))
    monkeypatch.setitem(PACKAGES, "tensorflow", tested)
    monkeypatch.delattr(version_check, "_check")
    check_newer_versions()


@pytest.mark.repeats
def test_the_program_passes_here_and_reports_why_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert version_check._run() == ""
    monkeypatch.setattr(version_check, "PROGRAM", "tfps.no_such_program")
    assert "No module named tfps.no_such_program (status 1)" in version_check._run()
