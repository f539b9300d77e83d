"""Keeps the connections between the tasks of a cluster away from HTTP proxies."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tfps.cluster.address import split_address

# As gRPC reads them: the first that is set counts, for each channel that is made.
PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
EXCLUSIONS = ("no_grpc_proxy", "no_proxy")


def exclude_from_proxies(addresses: Iterable[str]) -> None:
    """Let gRPC in this process connect to some hosts without a proxy.

    With a proxy TensorFlow's connections hang. Does nothing if the environment names none. The
    hosts join the list ``no_grpc_proxy``, which begins as ``no_proxy``: that is read by other
    libraries too, and stays.

    Args:
        addresses: ``host:port`` each; called before the first channel to them is made.
    """
    if not any(os.environ.get(name) for name in PROXIES):
        return
    text = next((os.environ[name] for name in EXCLUSIONS if name in os.environ), "")
    known = [host for part in text.split(",") if (host := part.strip())]
    hosts = dict.fromkeys([*known, *(split_address(address)[0] for address in addresses)])
    if len(hosts) > len(known):
        os.environ[EXCLUSIONS[0]] = ",".join(hosts)
