"""Finds the addresses of the servers for `tfps.attach`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfps.cluster import ClusterSpec
from tfps.cluster.address import address_problem
from tfps.errors import ConfigError, ConnectTimeout
from tfps.scheduler.client import read_places
from tfps.transport.direct import HandshakeError


def server_addresses(addresses: Any, problems: list[str]) -> list[str]:
    """Return the addresses of the servers' TensorFlow ports, in the servers' order.

    Args:
        addresses: a list, a cluster resolver, or None for ``TF_CONFIG``.
        problems: a list that gets each mistake; the result is invalid then.
    """
    if isinstance(addresses, str):
        problems.append(
            f"addresses: received {addresses!r}, expected a list of strings: [{addresses!r}]"
        )
        return []
    if isinstance(addresses, Sequence):
        return _to_address_list(addresses, problems)
    try:
        if addresses is None:
            return list(ClusterSpec.from_environment().jobs["ps"])
        if callable(getattr(addresses, "cluster_spec", None)):
            return list(ClusterSpec.from_resolver(addresses).jobs["ps"])
    except ConfigError as error:
        problems += [f"addresses: {problem}" for problem in error.problems]
        return []
    problems.append(
        f"addresses: received {addresses!r}, expected a list of 'host:port', a cluster resolver, "
        "or None to read TF_CONFIG"
    )
    return []


def scheduler_problems(scheduler: Any, addresses: Any) -> list[str]:
    """Return what is wrong with the address of a scheduler, beside the servers' addresses."""
    problems = []
    if not isinstance(scheduler, str) or address_problem(scheduler):
        problems.append(f"scheduler: received {scheduler!r}, expected 'host:port'")
    if addresses is not None:
        problems.append("addresses: received them beside scheduler=; give one of both")
    return problems


def ask_scheduler(scheduler: str, *, secret: bytes | None, timeout_s: float) -> list[str]:
    """Return the present addresses of the servers, as the scheduler knows them.

    Args:
        scheduler: its address.
        secret: the secret of the job; None for none.
        timeout_s: the seconds that it may take.

    Raises:
        ConfigError: it has another secret.
        ConnectTimeout: it does not reply, or knows no address of a server yet.
    """
    try:
        places = read_places(scheduler, secret=secret, timeout_s=timeout_s)["places"]
    except HandshakeError as error:
        raise ConfigError(f"scheduler, secret: {error}", source="tfps.attach") from error
    except (OSError, ValueError) as error:
        raise ConnectTimeout(
            f"the scheduler at {scheduler} does not reply ({error}); check the address, and that "
            "`tfps scheduler` runs there"
        ) from error
    servers = {f"ps {p['index']}": p["address"] for p in places if p["role"] == "ps"}
    missing = [name for name, address in servers.items() if address is None]
    if missing:
        raise ConnectTimeout(
            f"the scheduler at {scheduler} knows no address of {', '.join(missing)}; wait until "
            "the job trains"
        )
    return list(servers.values())


def _to_address_list(addresses: Sequence[Any], problems: list[str]) -> list[str]:
    if not addresses:
        problems.append("addresses: received none, expected the addresses of the parameter servers")
    found = [address_problem(address) for address in addresses]
    problems += [f"addresses: {problem}" for problem in found if problem is not None]
    return list(addresses)
