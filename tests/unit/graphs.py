"""Settings that speed up tests that trace much and run little."""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Iterator

from tests.quickly import leave_graphs_as_traced

# The entries that modules left in caches are freed then: a third of what a process grows by
# would stay, and one that ran half of the tests had 10 GB; each time takes about a second.
MODULES_UNTIL_ALL_IS_LOOKED_THROUGH = 8

_modules = itertools.count(1)


@contextlib.contextmanager
def graphs_as_traced() -> Iterator[None]:
    """Optimize no graph within the block."""
    leave_graphs_as_traced()
    try:
        yield
    finally:
        leave_graphs_as_traced(leave=False)


@contextlib.contextmanager
def graphs_left_alone_by_the_collector() -> Iterator[None]:
    """Keep the collector from objects of imports and traces: they would cost a tenth of the time.

    What outlives a module's tests is looked through at the begin of the next ones, and then only
    every few modules, since half a second or more would go into it each time.
    """
    thresholds = gc.get_threshold()
    if next(_modules) % MODULES_UNTIL_ALL_IS_LOOKED_THROUGH == 0:
        gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20 * thresholds[0], *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
