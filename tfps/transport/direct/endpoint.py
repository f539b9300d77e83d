"""The address of a listener: a unix socket on its own machine, TCP from other machines."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tfps.errors import ProtocolError


@dataclass(frozen=True)
class Endpoint:
    """The address of a listener, which tasks send to each other as JSON.

    Args:
        host: a name or an address, IPv6 without brackets.
        port: the TCP port.
        unix_name: the name of an abstract unix socket, without its leading zero byte; may be empty.
        machine: the machine of the unix socket, see `this_machine`; empty if it is unknown.

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
        """Decode the result of `to_json`.

        Raises:
            ProtocolError: the text is something else.
        """
        try:
            values = json.loads(text)
            endpoint = cls(**values)
            kinds = [type(value) for value in asdict(endpoint).values()]
        except (ValueError, TypeError, RecursionError) as error:
            raise ProtocolError(
                f"endpoint: received {text!r:.200}, expected the result of to_json() ({error})"
            ) from error
        if kinds != [str, int, str, str] or not 0 < endpoint.port < 2**16:
            raise ProtocolError(
                f"endpoint: received {text!r:.200}, expected strings and a port of 1 to 65535"
            )
        return endpoint


@functools.cache
def this_machine() -> str:
    """Return an id of the running kernel and network namespace, to which unix sockets belong."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = Path("/proc/self/ns/net").stat().st_ino
    except OSError:  # hidden in some containers: TCP works there
        return ""
    return f"{boot}/{namespace}"
