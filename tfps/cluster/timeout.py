"""Timeouts that a user sets by an environment variable."""

from __future__ import annotations

import math
import os

from tfps.errors import ConfigError


def timeout_from_environment(variable: str, *, default_s: float) -> float:
    """Return a number of seconds above 0; infinite waits for ever.

    Args:
        variable: its name.
        default_s: where it is not set, or empty.

    Raises:
        ConfigError: it is set to anything else.

    Example:

    >>> timeout_from_environment("TFPS_NO_SUCH_VARIABLE", default_s=300.0)
    300.0
    """
    text = os.environ.get(variable, "")
    if not text.strip():
        return default_s
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value > 0:
        raise ConfigError(
            f"{text!r}; expected a number of seconds above 0, or inf to wait for ever",
            source=variable,
        )
    return value
