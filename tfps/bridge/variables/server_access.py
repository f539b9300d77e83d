"""Repeats the chief's reads and writes of variables after a lost server has returned.

Where it does not return, they fail with `UnavailableError`, whatever TensorFlow says.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import tensorflow as tf

T = TypeVar("T")

# TensorFlow's errors for a server that is gone, or was restarted and does not know this process.
LOSS_ERRORS = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.UnavailableError,
    tf.errors.UnknownError,
)
# Methods of variables that may be repeated, and others that might be applied twice.
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
SUMS = frozenset({"assign_add", "assign_sub"})


class AccessWatch(Protocol):
    """Repeats accesses that fail because a server is lost, after it was brought back."""

    def repeat(self, access: Callable[[], T]) -> T:
        """Return the result of an access; runs it again each time that a lost server ends it."""


class ServerCheck(Protocol):
    """Finds out whether the server of a variable is lost."""

    def check_server(self, device: str) -> None:
        """Raise `tf.errors.UnavailableError` if a server is gone, hangs or was restarted."""


WATCHES: weakref.WeakValueDictionary[str, AccessWatch] = weakref.WeakValueDictionary()
CHECKS: weakref.WeakValueDictionary[str, ServerCheck] = weakref.WeakValueDictionary()


def watch_accesses(container: str, watch: AccessWatch) -> None:
    """Repeat the eager accesses to a job's variables as long as the watch exists."""
    WATCHES[container] = watch


def check_failed_accesses(container: str, check: ServerCheck) -> None:
    """Check servers after failed accesses to a job's variables as long as the check exists."""
    CHECKS[container] = check


def get_watch(container: str) -> AccessWatch | None:
    """Return the watch of a container; None without one, and in traced functions."""
    return WATCHES.get(container) if tf.executing_eagerly() else None


def repeat_accesses(kind: type[Any], *, inherited: bool = False) -> None:
    """Wrap the methods in `ACCESSES` of a variable class, so that failed calls are repeated.

    Those in `SUMS` are not repeated; all of them name a lost server.

    Args:
        kind: `ServerVariable` or a subclass.
        inherited: whether to wrap inherited methods as well.
    """
    for name in ACCESSES | SUMS if inherited else (ACCESSES | SUMS) & vars(kind).keys():
        setattr(kind, name, _wrap_access(getattr(kind, name), repeats=name in ACCESSES))


def _wrap_access(method: Callable[..., T], *, repeats: bool) -> Callable[..., T]:
    @functools.wraps(method)
    def access(self: Any, *arguments: Any, **options: Any) -> T:
        watch = get_watch(self.container) if repeats else None
        try:
            if watch is None:
                return method(self, *arguments, **options)
            return watch.repeat(lambda: method(self, *arguments, **options))
        except LOSS_ERRORS as error:
            check = CHECKS.get(self.container) if tf.executing_eagerly() else None
            if check is None or isinstance(error, tf.errors.UnavailableError):
                raise
            check.check_server(self.device)
            raise

    return access
