"""Which carrier a user wants. Pure."""

from __future__ import annotations

import os
from typing import Any

from tfps.errors import ConfigError

TRANSPORTS = ("auto", "direct", "grpc")
# What "auto" means in this process: one job, or a whole test suite, on another carrier.
TRANSPORT_VARIABLE = "TFPS_TRANSPORT"


def wanted_transport(transport: Any) -> str:
    """One of `TRANSPORTS`; of ``"auto"`` what the environment says.

    Args:
        transport: of a strategy, or of a job file.

    Raises:
        ConfigError: another value, here or in ``TFPS_TRANSPORT``.

    Example:

    >>> wanted_transport("grpc")
    'grpc'
    """
    choices = ", ".join(repr(name) for name in TRANSPORTS)
    if transport not in TRANSPORTS:
        raise ConfigError(f"transport: received {transport!r}, expected one of {choices}")
    if transport != "auto":
        return str(transport)
    wanted = os.environ.get(TRANSPORT_VARIABLE, "").strip() or "auto"
    if wanted not in TRANSPORTS:
        raise ConfigError(
            f"received {wanted!r}, expected one of {choices}, or nothing",
            source=TRANSPORT_VARIABLE,
        )
    return wanted
