"""The first message of a client on a connection, which describes the client. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import ConfigDict, Field

from tfps.errors import ProtocolError
from tfps.json_text import parse_json

# A plan of a thousand variables has about 100 KB.
HELLO_BYTES = 2**20

Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class HelloError(ProtocolError):
    """Raised if bytes are no valid `Hello`."""


@dataclass(frozen=True)
class Hello:
    """The identity of a client and the purpose of its connection.

    Args:
        job: the hash of the job's name, int64.
        worker: the index of the task within its role.
        incarnation: a number that grows with every start of the client, int64.
        role: the purpose of the connection.
        plan: a text whose meaning both sides know.

    Example:

    >>> hello = Hello(job=7, worker=0, incarnation=3)
    >>> Hello.from_bytes(hello.to_bytes()) == hello
    True
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    job: Int64
    worker: Int64
    incarnation: Int64
    role: str = "worker"
    plan: str = ""

    def to_bytes(self) -> bytes:
        """Encode the hello as JSON.

        Raises:
            HelloError: longer than `HELLO_BYTES`.
        """
        data = json.dumps(asdict(self), separators=(",", ":")).encode()
        if len(data) > HELLO_BYTES:
            raise HelloError(f"hello: {len(data)} bytes, expected at most {HELLO_BYTES}")
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> Hello:
        """Decode the result of `to_bytes`.

        Raises:
            HelloError: longer than `HELLO_BYTES`, no JSON, or other fields.
        """
        if len(data) > HELLO_BYTES:
            raise HelloError(f"hello: received {len(data)} bytes, expected at most {HELLO_BYTES}")
        try:
            hello: Hello = parse_json(cls, data)
        except ValueError as error:
            raise HelloError(f"hello: {error}; expected {sorted(cls.__annotations__)}") from error
        return hello
