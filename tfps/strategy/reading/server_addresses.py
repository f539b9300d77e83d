"""Reads the ``addresses`` argument of `tfps.attach`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfps.cluster import ClusterSpec
from tfps.cluster.address import address_problem
from tfps.errors import ConfigError


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


def data_ports(addresses: Any, problems: list[str]) -> list[str]:
    """Return the addresses of the servers' data ports, which only the user knows.

    Args:
        addresses: a list, in the servers' order.
        problems: a list that gets each mistake; the result is invalid then.
    """
    if isinstance(addresses, str) or not isinstance(addresses, Sequence):
        problems.append(
            f"addresses: received {addresses!r}; with tls=, expected a list of 'host:port' with "
            "the TFPS_DATA_PORT of each parameter server"
        )
        return []
    return _to_address_list(addresses, problems)


def _to_address_list(addresses: Sequence[Any], problems: list[str]) -> list[str]:
    if not addresses:
        problems.append("addresses: received none, expected the addresses of the parameter servers")
    found = [address_problem(address) for address in addresses]
    problems += [f"addresses: {problem}" for problem in found if problem is not None]
    return list(addresses)
