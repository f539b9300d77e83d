"""Refuses pushes of scheduled functions in modes in which workers wait for each other."""

from __future__ import annotations

from tfps.bridge.step_scope import current_step, record_trace_error
from tfps.consistency.modes import lets_workers_wait
from tfps.errors import UnsupportedError
from tfps.runtime.coordinator.runtime import Runtime


def refuse_where_others_wait(runtime: Runtime, primitive: str) -> None:
    """Refuse a push in a scheduled function if workers wait for each other in the job's mode.

    Raises:
        UnsupportedError: it is refused; raised later, when the function has been traced.
    """
    if current_step() is not None and lets_workers_wait(runtime.mode):
        record_trace_error(
            UnsupportedError(
                f"consistency={runtime.mode!r}: received strategy.{primitive}() in a scheduled "
                "function, which would not wait for other workers; call a Keras optimizer "
                "instead, or use tfps.Asynchronous()."
            )
        )
