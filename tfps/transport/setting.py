"""Reads the user's choice of transport and sockets. Pure."""

from __future__ import annotations

import os
from typing import Any

from tfps.errors import ConfigError

TRANSPORTS = ("auto", "direct", "grpc")
# The transport for "auto" in this process, to run a job or a test suite on another one.
TRANSPORT_VARIABLE = "TFPS_TRANSPORT"
UNIX_SOCKETS_VARIABLE = "TFPS_UNIX_SOCKETS"


def wanted_transport(transport: Any) -> str:
    """Return one of `TRANSPORTS`; for ``"auto"`` the value of ``TFPS_TRANSPORT``, if it is set.

    Args:
        transport: the argument of a strategy or the setting of a job file.

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
            f"received {wanted!r}, expected one of {choices}; correct or unset it",
            source=TRANSPORT_VARIABLE,
        )
    return wanted


def offers_unix_sockets() -> bool:
    """Return whether tasks on a server's own machine use a unix socket; with ``off`` they use TCP.

    The system counts bytes over TCP, so ``off`` allows to measure on one machine the traffic that
    there would be between machines.

    Raises:
        ConfigError: another value than ``on`` and ``off`` in ``TFPS_UNIX_SOCKETS``.
    """
    wanted = os.environ.get(UNIX_SOCKETS_VARIABLE, "").strip() or "on"
    if wanted not in ("on", "off"):
        raise ConfigError(
            f"received {wanted!r}, expected 'on' or 'off'; correct or unset it",
            source=UNIX_SOCKETS_VARIABLE,
        )
    return wanted == "on"
