"""Splits and checks ``host:port`` addresses."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

LARGEST_PORT = 65_535  # a TCP port is a 16-bit number


def split_address(address: str) -> tuple[str, int]:
    """Split a valid address into the host to connect to and the port.

    Args:
        address: ``host:port``, with an IPv6 host in brackets.

    Raises:
        ValueError: the address is not valid; the message has the reason.

    Example:

    >>> split_address("[::1]:2222")
    ('::1', 2222)
    """
    problem = address_problem(address)
    if problem:
        raise ValueError(problem)
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    """Return an address, with an IPv6 host in brackets.

    Example:

    >>> join_address("::1", 2222)
    '[::1]:2222'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine's own, which no other machine reaches by it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def loopback_problem(tasks: Iterable[tuple[str, int, str]]) -> str:
    """Return a sentence if some tasks have loopback addresses, and others have not; else nothing.

    Args:
        tasks: the type, index and address of each.

    Example:

    >>> loopback_problem([("chief", 0, "localhost:1"), ("worker", 0, "localhost:2")])
    ''
    """
    local: dict[bool, list[str]] = {True: [], False: []}
    for kind, index, address in tasks:
        local[is_loopback(split_address(address)[0])].append(f"{kind} {index} at {address}")
    if not (local[True] and local[False]):
        return ""
    return (
        f"received {', '.join(local[True])}: tasks on other machines do not reach a loopback "
        f"address, and {local[False][0]} may be on one; give the name of the machine instead"
    )


def address_problem(address: object) -> str | None:
    """Return what is wrong with an address and how to fix it, or None.

    Example:

    >>> address_problem("w0:http")
    "received 'w0:http', expected a port from 1 to 65535; write host:port, for example w0:2222"
    """
    if not isinstance(address, str):
        return f"received {address!r}, expected a string; write 'host:port'"
    if any(character.isspace() for character in address):
        return f"received {address!r}, expected no white space; write 'host:port'"
    if "://" in address or "/" in address:
        return f"received {address!r}, expected no URL or path; write only host:port"
    if address.startswith("["):
        return _bracketed_problem(address)
    if address.count(":") > 1:
        return (
            f"received {address!r}, expected brackets around an IPv6 address; "
            "write [address]:port, for example [::1]:2222"
        )
    host, colon, port = address.partition(":")
    if not colon:
        return _missing_port_text(address, address or "host")
    if not host:
        return f"received {address!r}, expected a host; write host:port"
    return _port_problem(address, host, port)


def _bracketed_problem(address: str) -> str | None:
    host, bracket, rest = address[1:].partition("]")
    if not bracket or ":" not in host:
        return f"received {address!r}, expected an IPv6 address in brackets; write [address]:port"
    if not rest.startswith(":"):
        return _missing_port_text(address, f"[{host}]")
    return _port_problem(address, f"[{host}]", rest[1:])


def _port_problem(address: str, host: str, port: str) -> str | None:
    is_number = port.isascii() and port.isdigit()
    if is_number and 1 <= int(port) <= LARGEST_PORT:
        return None
    return _missing_port_text(address, host)


def _missing_port_text(address: str, host: str) -> str:
    return (
        f"received {address!r}, expected a port from 1 to {LARGEST_PORT}; "
        f"write host:port, for example {host}:2222"
    )
