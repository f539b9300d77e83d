"""Splits and checks ``host:port`` addresses."""

from __future__ import annotations

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


def address_problem(address: object) -> str | None:
    """Return what is wrong with an address and how to fix it, or None.

    Example:

    >>> address_problem("worker-0:http")
    "'worker-0:http': the port 'http' is no number; write host:port, for example worker-0:2222"
    """
    if not isinstance(address, str):
        return f"{address!r} is no text; write 'host:port'"
    if any(character.isspace() for character in address):
        return f"{address!r} contains white space; write 'host:port'"
    if "://" in address or "/" in address:
        return f"{address!r} is a URL or a path; write only host:port"
    if address.startswith("["):
        return _bracketed_problem(address)
    if address.count(":") > 1:
        return (
            f"{address!r} looks like an IPv6 address without brackets; write [address]:port, "
            "for example [::1]:2222"
        )
    host, colon, port = address.partition(":")
    if not colon:
        return f"{address!r} has no port; write host:port, for example {address or 'host'}:2222"
    if not host:
        return f"{address!r} has no host; write host:port"
    return _port_problem(address, host, port)


def _bracketed_problem(address: str) -> str | None:
    host, bracket, rest = address[1:].partition("]")
    if not bracket or ":" not in host:
        return f"{address!r} is no IPv6 address in brackets; write [address]:port"
    if not rest.startswith(":"):
        return f"{address!r} has no port; write [{host}]:2222"
    return _port_problem(address, f"[{host}]", rest[1:])


def _port_problem(address: str, host: str, port: str) -> str | None:
    if not (port.isascii() and port.isdigit()):
        return (
            f"{address!r}: the port {port!r} is no number; write host:port, "
            f"for example {host if port else 'host'}:2222"
        )
    if not 1 <= int(port) <= LARGEST_PORT:
        return f"{address!r}: the port {port} is not between 1 and {LARGEST_PORT}"
    return None
