"""Derives from its operations how a step changes the state of a metric. Pure."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple


class Change(enum.Enum):
    """The relation of a value to the state before a step.

    If several workers count, each into its own state, only states of the first four can be merged.
    """

    KEPT = enum.auto()  # the state itself
    ADDED = enum.auto()  # the sum of the state and an independent value
    RAISED = enum.auto()  # the maximum of both; for booleans the logical or
    LOWERED = enum.auto()  # the minimum of both; for booleans the logical and
    REPLACED = enum.auto()  # independent of all states
    MIXED = enum.auto()  # any other relation


class Origin(NamedTuple):
    """The relation of a tensor to the states of metrics."""

    change: Change
    state: int | None = None  # the number of the state; None for none or several


INDEPENDENT = Origin(Change.REPLACED)
MIXED = Origin(Change.MIXED)

# Operations on a state and another value; in `COMMUTATIVE` in any order.
COMMUTATIVE = {
    "Add": Change.ADDED,
    "AddV2": Change.ADDED,
    "AddN": Change.ADDED,
    "Maximum": Change.RAISED,
    "Minimum": Change.LOWERED,
    "LogicalOr": Change.RAISED,
    "LogicalAnd": Change.LOWERED,
}
OTHER_OPERATIONS = {
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


def relation_after(operation: str, inputs: Sequence[Origin]) -> Origin:
    """Return the relation of an operation's output to states, by the name of the operation's type.

    >>> old = Origin(Change.KEPT, 0)
    >>> relation_after("AddV2", [old, INDEPENDENT]).change
    <Change.ADDED: 2>
    >>> relation_after("Maximum", [relation_after("AddV2", [old, INDEPENDENT]), INDEPENDENT]).change
    <Change.MIXED: 6>
    >>> relation_after("AddV2", [old, old]).change
    <Change.MIXED: 6>
    """
    dependent = [each for each in inputs if each != INDEPENDENT]
    if not dependent:
        return INDEPENDENT
    change = COMMUTATIVE.get(operation) or (
        OTHER_OPERATIONS.get(operation) if inputs[0] != INDEPENDENT else None
    )
    (old, *more) = dependent
    if change is None or more or old.change not in (Change.KEPT, change):
        return MIXED
    return Origin(change, old.state)


def either(one: Origin, other: Origin) -> Origin:
    """Return the relation of a value that a condition chooses; it depends on no state itself."""
    if one == other:
        return one
    if one.state == other.state is not None:
        if one.change == Change.KEPT:
            return other
        if other.change == Change.KEPT:
            return one
    return MIXED
