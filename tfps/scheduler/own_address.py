"""Reads the address under which the others reach a task, with or without a port. Pure."""

from __future__ import annotations

import ipaddress

from tfps.cluster.address import address_problem, split_address

EXPECTED = (
    "expected an address of this machine that the other tasks reach, with or without a port from 1 "
    "to 65535; write for example 10.0.0.5, 10.0.0.5:5000 or [fd00::5]:5000"
)


def read_own_address(text: str) -> tuple[str, int | None]:
    """Return the host and the port; None for a free one.

    Raises:
        ValueError: no task is reached there; the message has the reason.

    Example:

    >>> read_own_address("[::1]:5"), read_own_address("a")
    (('::1', 5), ('a', None))
    """
    has_port = ":" in text.rpartition("]")[2]
    address = text if has_port else f"{text}:1"
    if address_problem(address) is not None or not is_reached(split_address(address)[0]):
        raise ValueError(f"received {text!r}, {EXPECTED}")
    host, port = split_address(address)
    return host, port if has_port else None


def is_reached(host: str) -> bool:
    """Return whether a host can be one machine's: a name, or an address that is not for many.

    Example:

    >>> [is_reached(host) for host in ("a.b", "10.0.0.1", "0.0.0.0", "*", "a,b", "10.0.1")]
    [True, True, False, False, False, False]
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        is_name = all(each.isalnum() or each in "-_." for each in host)
        return is_name and not host.replace(".", "").isdigit()
    is_broadcast = str(address) == "255.255.255.255"
    return not (address.is_unspecified or address.is_multicast or is_broadcast)
