"""Repeats the chief's reads and writes of variables after a lost server has returned."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import tensorflow as tf

T = TypeVar("T")

# Methods of variables. `assign_add` and `assign_sub` are missing: they might be applied twice.
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
    """Repeats accesses that fail because a server is lost, after it was brought back."""

    def repeat(self, access: Callable[[], T]) -> T:
        """Return the result of an access; runs it again each time that a lost server ends it."""


WATCHES: weakref.WeakValueDictionary[str, AccessWatch] = weakref.WeakValueDictionary()


def watch_accesses(container: str, watch: AccessWatch) -> None:
    """Repeat the eager accesses to a job's variables as long as the watch exists."""
    WATCHES[container] = watch


def get_watch(container: str) -> AccessWatch | None:
    """Return the watch of a container; None without one, and in traced functions."""
    return WATCHES.get(container) if tf.executing_eagerly() else None


def repeat_accesses(kind: type[Any], *, inherited: bool = False) -> None:
    """Wrap the methods in `ACCESSES` of a variable class, so that failed calls are repeated.

    Args:
        kind: `ServerVariable` or a subclass.
        inherited: whether to wrap inherited methods as well.
    """
    for name in ACCESSES if inherited else ACCESSES & vars(kind).keys():
        setattr(kind, name, _wrap_repeated(getattr(kind, name)))


def _wrap_repeated(method: Callable[..., T]) -> Callable[..., T]:
    @functools.wraps(method)
    def access(self: Any, *arguments: Any, **options: Any) -> T:
        watch = get_watch(self.container)
        if watch is None:
            return method(self, *arguments, **options)
        return watch.repeat(lambda: method(self, *arguments, **options))

    return access
