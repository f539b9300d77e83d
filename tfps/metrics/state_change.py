"""The change that a step makes to the state of a metric, operation by operation. Pure."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple


class Change(enum.Enum):
    """How a value follows from the state before a step.

    Where several workers count, each into a state of its own, only the first four become one.
    """

    KEPT = enum.auto()  # it is the state
    ADDED = enum.auto()  # the state and what does not depend on it, added
    RAISED = enum.auto()  # the larger of the two; of booleans whether either holds
    LOWERED = enum.auto()  # the smaller of the two; of booleans whether both hold
    REPLACED = enum.auto()  # it does not depend on any state
    MIXED = enum.auto()  # something else


class Origin(NamedTuple):
    """How a tensor follows from states of metrics."""

    change: Change
    state: int | None = None  # which state; None: none, or several


INDEPENDENT = Origin(Change.REPLACED)
MIXED = Origin(Change.MIXED)

# Operations on a state, first, and on something else, which may come first where they commute.
COMMUTATIVE = {
    "Add": Change.ADDED,
    "AddV2": Change.ADDED,
    "AddN": Change.ADDED,
    "Maximum": Change.RAISED,
    "Minimum": Change.LOWERED,
    "LogicalOr": Change.RAISED,
    "LogicalAnd": Change.LOWERED,
}
OTHERS = {
    "Sub": Change.ADDED,
    "AssignAddVariableOp": Change.ADDED,
    "AssignSubVariableOp": Change.ADDED,
    "TensorScatterAdd": Change.ADDED,
    "TensorScatterSub": Change.ADDED,
    "TensorScatterMax": Change.RAISED,
    "TensorScatterMin": Change.LOWERED,
    "ResourceScatterAdd": Change.ADDED,
    "ResourceScatterSub": Change.ADDED,
    "ResourceScatterMax": Change.RAISED,
    "ResourceScatterMin": Change.LOWERED,
    "ResourceScatterNdAdd": Change.ADDED,
    "ResourceScatterNdSub": Change.ADDED,
    "ResourceScatterNdMax": Change.RAISED,
    "ResourceScatterNdMin": Change.LOWERED,
}


def after(operation: str, inputs: Sequence[Origin]) -> Origin:
    """Return how the output of an operation follows from states, by the name of its type.

    >>> old = Origin(Change.KEPT, 0)
    >>> after("AddV2", [old, INDEPENDENT]).change
    <Change.ADDED: 2>
    >>> after("Maximum", [after("AddV2", [old, INDEPENDENT]), INDEPENDENT]).change
    <Change.MIXED: 6>
    >>> after("AddV2", [old, old]).change
    <Change.MIXED: 6>
    """
    dependent = [each for each in inputs if each != INDEPENDENT]
    if not dependent:
        return INDEPENDENT
    change = COMMUTATIVE.get(operation) or (
        OTHERS.get(operation) if inputs[0] != INDEPENDENT else None
    )
    (old, *more) = dependent
    if change is None or more or old.change not in (Change.KEPT, change):
        return MIXED
    return Origin(change, old.state)


def either(one: Origin, other: Origin) -> Origin:
    """Return how a value follows that a condition chooses, which depends on no state."""
    if one == other:
        return one
    if one.state == other.state is not None:
        if one.change == Change.KEPT:
            return other
        if other.change == Change.KEPT:
            return one
    return MIXED
