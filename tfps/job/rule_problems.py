"""Mistakes of a job file in the patterns of its rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfps.errors import ConfigError


def rule_problems(make: Callable[[], Any], *, section: str) -> list[str]:
    """Return a sentence for each rule of a section that cannot be followed.

    Args:
        make: makes what the section describes.
        section: its name in the job file.
    """
    try:
        make()
    except ConfigError as error:
        return [f"{section}.rules: {problem}" for problem in error.problems]
    return []
