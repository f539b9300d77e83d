"""Calls to all servers at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

Result = TypeVar("Result")


def run_in_parallel(calls: Sequence[Callable[[], Result]]) -> list[Result]:
    """Return the results of the calls, in order; each call runs in a thread of its own.

    Raises:
        BaseException: the first error, in the order of the calls, when all have ended.
    """
    results: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}

    def run(position: int) -> None:
        try:
            results[position] = calls[position]()
        except BaseException as error:  # noqa: BLE001 - raised below, on the caller's thread
            errors[position] = error

    # No pool of threads: it cannot be used any more while the interpreter ends.
    threads = [threading.Thread(target=run, args=[position]) for position in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[min(errors)]
    return [results[position] for position in range(len(calls))]
