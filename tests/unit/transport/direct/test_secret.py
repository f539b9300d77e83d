"""The secret: from the environment or a file, never an empty one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.messages import raises
from tfps.errors import ConfigError
from tfps.transport.direct.secret import secret_from_environment


def test_without_a_setting_there_is_none() -> None:
    assert secret_from_environment({}) is None


def test_text_and_file_are_the_same_secret(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes("geheim ö\n".encode())
    found = secret_from_environment({"TFPS_JOB_SECRET_FILE": str(file)})
    assert found == secret_from_environment({"TFPS_JOB_SECRET": "geheim ö"}) == "geheim ö".encode()


def test_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFPS_JOB_SECRET_FILE", raising=False)
    monkeypatch.setenv("TFPS_JOB_SECRET", "abc")
    assert secret_from_environment() == b"abc"


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_secret_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "secret"
    file.write_text(text)
    with raises(ConfigError, "TFPS_JOB_SECRET: ", received="an empty secret"):
        secret_from_environment({"TFPS_JOB_SECRET": text})
    with raises(ConfigError, f"TFPS_JOB_SECRET_FILE ({file})", received="an empty secret"):
        secret_from_environment({"TFPS_JOB_SECRET_FILE": str(file)})


@pytest.mark.parametrize("name", ["", "missing", ".", "with\0zero"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    with raises(ConfigError, "TFPS_JOB_SECRET_FILE", received=repr(str(tmp_path / name))):
        secret_from_environment({"TFPS_JOB_SECRET_FILE": str(tmp_path / name)})


def test_two_secrets_are_refused() -> None:
    both = {"TFPS_JOB_SECRET": "a", "TFPS_JOB_SECRET_FILE": "b"}
    with raises(ConfigError, "TFPS_JOB_SECRET", received="both", remedy="unset"):
        secret_from_environment(both)
