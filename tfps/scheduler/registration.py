"""The message in which a task describes itself to the scheduler, as JSON. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from tfps.cluster.address import address_problem, is_loopback, split_address
from tfps.cluster.validation import TASK_TYPES
from tfps.scheduler.own_address import is_reached
from tfps.scheduler.task_words import printable, read_object

SERVING_ROLES = ("ps", "worker")  # a task without a role becomes the first one that is missing


@dataclass(frozen=True, kw_only=True)
class Registration:
    """The role, the address and the versions of a task that asks for a place.

    Args:
        role: ``chief``, ``worker``, ``ps`` or ``evaluator``; None for a worker or a server.
        index: the index that the task names; None for any.
        address: where the task will listen; empty for an evaluator, which does not.
        is_return: whether the index is that of a place which the task held before.
        versions: the versions of the packages that all tasks have to share.
        host: the host that the connection comes from, as the scheduler sees it.
        number: the number of the connection.

    Example:

    >>> registration = Registration(role="worker", index=1, address="10.0.0.2:2222")
    >>> Registration.from_json(registration.to_json()) == registration
    True
    """

    role: str | None
    index: int | None
    address: str
    is_return: bool = False
    versions: dict[str, str | None] = field(default_factory=dict, hash=False)
    host: str = ""
    number: int = 0

    @property
    def is_local(self) -> bool:
        """Whether only tasks of the same machine reach the address."""
        return bool(self.address) and is_loopback(split_address(self.address)[0])

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str, *, host: str = "", number: int = 0) -> Registration:
        """Read a registration.

        Args:
            text: the result of `to_json` in another process.
            host: the host that it came from.
            number: the number of the connection.

        Raises:
            ValueError: it is no registration; the message has the reason.
        """
        value = read_object(text)
        problems = _problems(value)
        if problems:
            raise ValueError("; ".join(problems))
        value["versions"] = {
            printable(name): version and printable(version)
            for name, version in value["versions"].items()
        }
        names = ("role", "index", "address", "is_return", "versions")
        return cls(**{name: value[name] for name in names}, host=host, number=number)


def _problems(value: dict[str, Any]) -> list[str]:
    role, index, address = value.get("role"), value.get("index"), value.get("address")
    versions = value.get("versions")
    right = {
        "role": role is None or role in TASK_TYPES,
        "index": index is None or (type(index) is int and index >= 0 and role is not None),
        "address": address == ""
        if role == "evaluator"
        else address_problem(address) is None and is_reached(split_address(str(address))[0]),
        "is_return": isinstance(value.get("is_return"), bool),
        "versions": isinstance(versions, dict)
        and all(isinstance(part, str | None) for pair in versions.items() for part in pair),
    }
    return [f"{key}: received {value.get(key)!r:.100}" for key, fits in right.items() if not fits]
