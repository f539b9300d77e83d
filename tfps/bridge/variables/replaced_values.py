"""Temporarily replaces the native variables inside of Keras variables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def replace_values(replacements: list[tuple[Any, Any]]) -> Iterator[None]:
    """Replace the native variables of Keras variables while the context is open."""
    saved = [(variable, variable._value) for variable, _ in replacements]
    try:
        for variable, value in replacements:
            variable._value = value
        yield
    finally:
        for variable, value in saved:
            variable._value = value
