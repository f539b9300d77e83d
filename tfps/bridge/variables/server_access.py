"""What the chief itself reads and writes on servers, again where one was lost and is back."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import tensorflow as tf

T = TypeVar("T")

# Of variables. What is added to one is not among them, since it might be added twice.
ACCESSES = frozenset(
    {
        "_read_variable_op",
        "assign",
        "gather_nd",
        "is_initialized",
        "numpy",
        "read_value",
        "refresh_mirrors",
        "sparse_read",
        "value",
    }
)


class AccessWatch(Protocol):
    """Who knows when a server is lost, and brings it back."""

    def repeat(self, access: Callable[[], T]) -> T:
        """Answer what an access does that no loss has met; it may run several times."""


_watches: weakref.WeakValueDictionary[str, AccessWatch] = weakref.WeakValueDictionary()


def watch_accesses(container: str, watch: AccessWatch) -> None:
    """Let somebody repeat the eager accesses to a job's variables, as long as there is a watch."""
    _watches[container] = watch


def watch_of(container: str) -> AccessWatch | None:
    """Who repeats accesses of this moment; nobody while a function is traced."""
    return _watches.get(container) if tf.executing_eagerly() else None


def repeat_accesses(kind: type[Any], *, inherited: bool = False) -> None:
    """Make the accesses of a class of variables such that they are repeated.

    Args:
        kind: of `ServerVariable`, or below it.
        inherited: those that it does not define itself as well.
    """
    for name in ACCESSES if inherited else ACCESSES & vars(kind).keys():
        setattr(kind, name, _repeated(getattr(kind, name)))


def _repeated(method: Callable[..., T]) -> Callable[..., T]:
    @functools.wraps(method)
    def access(self: Any, *arguments: Any, **options: Any) -> T:
        watch = watch_of(self.container)
        if watch is None:
            return method(self, *arguments, **options)
        return watch.repeat(lambda: method(self, *arguments, **options))

    return access
