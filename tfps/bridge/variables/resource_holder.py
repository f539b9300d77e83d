"""What takes note of all that is made on a server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from tfps.bridge.variables.named_resource import NamedResource
from tfps.bridge.variables.server_variable import ServerVariable

V = TypeVar("V", bound=ServerVariable)


class ResourceHolder(Protocol):
    """The record of a server: whoever makes a resource there makes it here.

    Attributes:
        device: the server.
        container: of what is made there.
    """

    device: str
    container: str

    def create(self, kind: type[V], initial_value: Any, **options: Any) -> V:
        """Make a variable of a kind."""

    def add(self, resources: Iterable[NamedResource]) -> None:
        """Take note of what requests make when they need it, as mutexes and queues."""
