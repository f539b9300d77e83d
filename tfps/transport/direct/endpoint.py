"""Where a listener is reached: a unix socket on its own machine, TCP from everywhere else."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tfps.errors import ProtocolError


@dataclass(frozen=True)
class Endpoint:
    """How to reach a listener; tasks tell it to each other as JSON.

    Args:
        host: name or address, IPv6 without brackets.
        port: of TCP.
        unix_name: of an abstract unix socket, without its leading zero byte; may be empty.
        machine: where the unix socket is, see `this_machine`; empty where that is unknown.

    Example:

    >>> Endpoint.from_json('{"host": "::1", "port": 7000, "unix_name": "", "machine": ""}').address
    '[::1]:7000'
    """

    host: str
    port: int
    unix_name: str = ""
    machine: str = ""

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether the unix socket is on this machine."""
        return bool(self.unix_name and self.machine) and self.machine == this_machine()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Endpoint:
        """Decode what `to_json` wrote.

        Raises:
            ProtocolError: anything else.
        """
        try:
            values = json.loads(text)
            endpoint = cls(**values)
            kinds = [type(value) for value in asdict(endpoint).values()]
        except (ValueError, TypeError, RecursionError) as error:
            raise ProtocolError(f"received {text!r:.200}, expected an endpoint: {error}") from error
        if kinds != [str, int, str, str] or not 0 < endpoint.port < 2**16:
            raise ProtocolError(
                f"received {text!r:.200}, expected an endpoint with a port of 1 to 65535 and text"
            )
        return endpoint


@functools.cache
def this_machine() -> str:
    """Names the running kernel and the network namespace: abstract unix sockets live in both."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = Path("/proc/self/ns/net").stat().st_ino
    except OSError:  # hidden in some containers: TCP works there
        return ""
    return f"{boot}/{namespace}"
