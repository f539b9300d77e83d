"""Finds invalid patterns in the rules of a job file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfps.errors import ConfigError


def rule_problems(make: Callable[[], Any], *, section: str) -> list[str]:
    """Return a sentence for each invalid rule of a section.

    Args:
        make: makes the object that the section describes.
        section: the section's name in the job file.
    """
    try:
        make()
    except ConfigError as error:
        return [f"{section}.rules: {problem}" for problem in error.problems]
    return []
