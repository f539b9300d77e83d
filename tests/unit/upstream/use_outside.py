"""TensorFlow's warning of a method that is called outside of a scheduled function."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

OUTSIDE = "method is invoked without using `ClusterCoordinator.schedule`"


@contextmanager
def warns_of_use_outside(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """While this is open the warning is due."""
    caplog.clear()
    yield
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert any(OUTSIDE in warning for warning in warnings), warnings
