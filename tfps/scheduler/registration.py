"""The message in which a task describes itself to the scheduler, as JSON. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated

from pydantic import Field

from tfps.cluster.address import address_problem, is_loopback, split_address
from tfps.cluster.validation import TASK_TYPES
from tfps.json_text import parse_json
from tfps.scheduler.own_address import is_reached
from tfps.scheduler.task_words import printable

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
    index: Annotated[int, Field(ge=0)] | None
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
        task: Registration = parse_json(cls, text)
        if (problem := task._find_problem()) is not None:
            raise ValueError(problem)
        versions = {
            printable(name): version and printable(version)
            for name, version in task.versions.items()
        }
        return replace(task, versions=versions, host=host, number=number)

    def _find_problem(self) -> str | None:
        if self.role not in (None, *TASK_TYPES):
            return f"role: received {self.role!r:.100}"
        if self.index is not None and self.role is None:
            return f"index: received {self.index} without a role"
        is_right = (
            self.address == ""
            if self.role == "evaluator"
            else address_problem(self.address) is None
            and is_reached(split_address(self.address)[0])
        )
        return None if is_right else f"address: received {self.address!r:.100}"
