"""The Python of another row of versions, which `make test-versions` names."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

VERSIONS = """
from importlib import metadata
print(*(metadata.version(package).split(".")[:2] for package in ("tensorflow", "keras")))
"""


def _versions_of(python: str) -> str:
    return subprocess.check_output([python, "-c", VERSIONS], text=True, timeout=60)


@pytest.fixture(scope="session")
def other_python() -> str:
    python = os.environ.get("OTHER_PYTHON")
    if not python:
        pytest.skip("OTHER_PYTHON names no Python with other versions; make test-versions sets it")
    if _versions_of(python) == _versions_of(sys.executable):
        pytest.skip(f"{python} has the same TensorFlow and Keras as this Python")
    return python
