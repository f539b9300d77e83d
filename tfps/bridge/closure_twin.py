"""A closure that can run either of two traces of its function: which one is chosen at the start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def prepare_twin(closure: Any, twins: Mapping[Any, Any], *, queue: Any) -> None:
    """Let a closure be ready for `choose`, before a worker has it.

    Args:
        closure: just scheduled.
        twins: by the graph of a function, a concrete function of the same arguments and answers.
        queue: the coordinator's, that cancels it.
    """
    own = getattr(closure, "_concrete_function", None)
    twin = None if own is None else twins.get(own.graph)
    if twin is not None:
        cancelable = queue._cancellation_mgr.get_cancelable_function(twin)
        closure._tfps_choice = ((own, closure._function), (twin, cancelable))


def has_choice(closure: Any) -> bool:
    """Whether a closure has a twin and was prepared."""
    return hasattr(closure, "_tfps_choice")


def choose(closure: Any, *, twin: bool) -> None:
    """Say which of the two is going to run; a closure that is run again is asked again."""
    closure._concrete_function, closure._function = closure._tfps_choice[int(twin)]
