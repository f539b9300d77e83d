"""Defines the interface of the records that list a server's resources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from tfps.bridge.variables.named_resource import NamedResource
from tfps.bridge.variables.server_variable import ServerVariable

V = TypeVar("V", bound=ServerVariable)


class ResourceHolder(Protocol):
    """The record of a server, through which all resources on it are created.

    Attributes:
        device: the device of the server.
        container: the container of the resources.
    """

    device: str
    container: str

    def create(self, kind: type[V], initial_value: Any, **options: Any) -> V:
        """Create a variable of the class ``kind`` with an initial value."""

    def add(self, resources: Iterable[NamedResource]) -> None:
        """Record resources that requests create on first use, such as mutexes and queues."""
