"""Reads timeouts from environment variables."""

from __future__ import annotations

import math
import os

from tfps.errors import ConfigError

CHIEF_TIMEOUT_S = "TFPS_CHIEF_TIMEOUT_S"
DEFAULT_CHIEF_TIMEOUT_S = 600.0  # a platform restarts a lost chief within minutes
CONNECT_TIMEOUT_VARIABLE = "TFPS_CONNECT_TIMEOUT_S"


def timeout_from_environment(variable: str, *, default_s: float) -> float:
    """Return a timeout in seconds above 0, which may be infinite.

    Args:
        variable: the name of the variable.
        default_s: the timeout if the variable is not set, or empty.

    Raises:
        ConfigError: the variable has another value.

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
            f"received {text!r}, expected a number of seconds above 0, or inf for no limit",
            source=variable,
        )
    return value
