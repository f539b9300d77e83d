"""The address of a listener: a unix socket on its own machine, TCP from other machines."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field

from tfps.errors import ProtocolError
from tfps.json_text import parse_json


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

    __pydantic_config__ = ConfigDict(extra="forbid")

    host: str
    port: Annotated[int, Field(gt=0, lt=2**16)]
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
            endpoint: Endpoint = parse_json(cls, text)
        except ValueError as error:
            raise ProtocolError(f"endpoint: {error}; expected the result of to_json()") from error
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
