"""Checks of the messages of errors: their key, the received value and the remedy.

Whole sentences are not compared, so that a message can be reworded without its tests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

import pytest

Error = TypeVar("Error", bound=BaseException)


@contextlib.contextmanager
def raises(
    kind: type[Error] | tuple[type[Error], ...],
    key: str,
    *,
    received: object = "",
    remedy: str = "",
) -> Iterator[pytest.ExceptionInfo[Error]]:
    """Expect an error within the block, and compare what its message must contain.

    Args:
        kind: the class of the error.
        key: the argument, key, variable or task that the error is about.
        received: the value that was given, as the message shows it.
        remedy: a name from the advice, for example the function or argument to use instead.
    """
    with pytest.raises(kind) as caught:
        yield caught
    check_message(str(caught.value), key, received=received, remedy=remedy)


def check_message(message: str, key: str, *, received: object = "", remedy: str = "") -> None:
    """Compare what a message must contain; see `raises`."""
    missing = [part for part in (key, str(received), remedy) if part not in message]
    assert not missing, f"{message!r} lacks {missing}"
