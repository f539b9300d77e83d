"""Lets Keras variables hold other native variables for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def values_replaced(replacements: list[tuple[Any, Any]]) -> Iterator[None]:
    """While it is open, Keras variables hold other native variables."""
    saved = [(variable, variable._value) for variable, _ in replacements]
    try:
        for variable, value in replacements:
            variable._value = value
        yield
    finally:
        for variable, value in saved:
            variable._value = value
