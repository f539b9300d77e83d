"""The first message of a client on a connection, which describes the client. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

from tfps.errors import ProtocolError

# A plan of a thousand variables has about 100 KB.
HELLO_BYTES = 2**20


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

    job: int
    worker: int
    incarnation: int
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
            values = json.loads(data)
        except (ValueError, RecursionError) as error:  # deeply nested brackets
            raise HelloError(f"hello: received {data[:100]!r}, expected JSON ({error})") from error
        expected = {field.name: (str if field.type == "str" else int) for field in fields(cls)}
        if not isinstance(values, dict) or set(values) != set(expected):
            found = sorted(values) if isinstance(values, dict) else type(values).__name__
            raise HelloError(f"hello: received {found}, expected {sorted(expected)}")
        for name, kind in expected.items():
            value = values[name]
            # bool is an int to isinstance, not to a protocol.
            fits = not isinstance(value, int) or -(2**63) <= value < 2**63
            if type(value) is not kind or not fits:
                raise HelloError(
                    f"hello: {name}: received {value!r:.100}, expected"
                    f" {'an int64' if kind is int else 'text'}"
                )
        return cls(**values)
