"""Which carrier a user wants, and by which sockets. Pure."""

from __future__ import annotations

import os
from typing import Any

from tfps.errors import ConfigError

TRANSPORTS = ("auto", "direct", "grpc")
# What "auto" means in this process: one job, or a whole test suite, on another carrier.
TRANSPORT_VARIABLE = "TFPS_TRANSPORT"
UNIX_SOCKETS_VARIABLE = "TFPS_UNIX_SOCKETS"


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


def offers_unix_sockets() -> bool:
    """Whether a server's own machine reaches it by a unix socket; ``off``: by TCP, as others do.

    The system counts what travels by TCP, so what would travel between machines can be measured on
    one.

    Raises:
        ConfigError: another value than ``on`` and ``off`` in ``TFPS_UNIX_SOCKETS``.
    """
    wanted = os.environ.get(UNIX_SOCKETS_VARIABLE, "").strip() or "on"
    if wanted not in ("on", "off"):
        raise ConfigError(
            f"received {wanted!r}, expected 'on' or 'off', or nothing",
            source=UNIX_SOCKETS_VARIABLE,
        )
    return wanted == "on"
