"""Finds the factor by which a variable's new value depends on its old value, from a graph."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private

Factor: TypeAlias = Any  # a float, or a float64 scalar of the graph

_PASS_THROUGH = frozenset(
    {"Identity", "StopGradient", "PreventGradient", "Reshape", "EnsureShape", "Cast"}
)


class NotLinearError(Exception):
    """A new value is not a factor times the old value plus an independent term."""


def find_kept_factor(value: Any, variable: Any) -> Factor | None:
    """Return the factor m if a value is ``m * old + c``, where c does not depend on the old value.

    The factor follows from the operations, not from numbers: it is m for an average
    ``m * old + (1 - m) * new``, 1 for a counter, and 0 for a value independent of the old one.

    Args:
        value: a tensor of the graph that is being traced.
        variable: a resource variable of this graph or an outer one.

    Returns:
        None if the graph does not show such a sum.
    """
    if not isinstance(value, tf.Tensor) or value.graph is not private.current_graph():
        value = tf.convert_to_tensor(value)
    try:
        return _GraphWalk(variable.handle).get_factor(value)
    except NotLinearError:
        return None


class _GraphWalk:
    """Traverses a graph from a value back to the reads of a variable.

    Args:
        handle: the handle of the variable.
    """

    def __init__(self, handle: tf.Tensor) -> None:
        self._handle = handle
        self._dependents: dict[int, set[int]] = {}  # by graph
        self._factors: dict[int, Factor] = {}  # by tensor

    def get_factor(self, tensor: tf.Tensor) -> Factor:
        """Return the factor of the old value in a tensor; visits each tensor once."""
        if id(tensor) not in self._factors:
            self._factors[id(tensor)] = self._compute_factor(tensor)
        return self._factors[id(tensor)]

    def _compute_factor(self, tensor: tf.Tensor) -> Factor:
        if id(tensor) not in self._find_dependents(tensor.graph):
            return 0.0
        operation = tensor.op
        kind, inputs = operation.type, list(operation.inputs)
        if kind == "Placeholder":
            return self.get_factor(_get_captured(tensor))
        if kind == "ReadVariableOp":
            return 1.0
        if kind in _PASS_THROUGH:
            return self.get_factor(inputs[0])
        if kind in ("AddV2", "Add", "AddN"):
            return _add_factors([self.get_factor(each) for each in inputs])
        if kind == "Sub":
            return _add_factors(
                [self.get_factor(inputs[0]), _multiply(self.get_factor(inputs[1]), -1.0)]
            )
        if kind == "Neg":
            return _multiply(self.get_factor(inputs[0]), -1.0)
        if kind in ("Mul", "RealDiv"):
            return self._scale_factor(inputs[0], inputs[1], kind)
        if kind == "SelectV2" and inputs[0].shape.rank == 0:
            chosen = [self._as_tensor(each) for each in inputs[1:]]
            self._require_independent(inputs[0])
            return tf.where(inputs[0], *chosen)
        raise NotLinearError(kind)

    def _scale_factor(self, left: tf.Tensor, right: tf.Tensor, kind: str) -> Factor:
        if kind == "Mul" and id(left) not in self._find_dependents(left.graph):
            left, right = right, left
        self._require_independent(right)
        scale = _to_scalar(right)
        if kind == "RealDiv":
            scale = 1.0 / scale
        return _multiply(self.get_factor(left), scale)

    def _as_tensor(self, tensor: tf.Tensor) -> tf.Tensor:
        return tf.convert_to_tensor(self.get_factor(tensor), tf.float64)

    def _require_independent(self, tensor: tf.Tensor) -> None:
        if id(tensor) in self._find_dependents(tensor.graph):
            raise NotLinearError(tensor.op.type)

    def _find_dependents(self, graph: Any) -> set[int]:
        """Return the ids of the tensors of a graph that depend on the variable's value."""
        if id(graph) in self._dependents:
            return self._dependents[id(graph)]
        pending = [
            inside
            for outside, inside in getattr(graph, "captures", ())
            if getattr(outside, "graph", None) is not None  # an eager tensor has none
            and id(outside) in self._find_dependents(outside.graph)
        ]
        if graph is self._handle.graph:
            pending.append(self._handle)
        dependents = self._dependents[id(graph)] = {id(tensor) for tensor in pending}
        while pending:
            for operation in pending.pop().consumers():
                new = [output for output in operation.outputs if id(output) not in dependents]
                dependents.update(id(output) for output in new)
                pending += new
        return dependents


def _get_captured(tensor: tf.Tensor) -> tf.Tensor:
    """Return the outer tensor that a placeholder of a function's graph captures."""
    for outside, inside in getattr(tensor.graph, "captures", ()):
        if inside is tensor:
            return outside
    raise NotLinearError(tensor.op.type)


def _to_scalar(tensor: tf.Tensor) -> Factor:
    """Return the number that all items of a tensor have."""
    value = tf.get_static_value(tensor)
    if value is not None and value.size and np.all(value == value.flat[0]):
        return float(value.flat[0])
    if tensor.shape.rank != 0:
        raise NotLinearError(tensor.op.type)
    return tf.cast(tensor, tf.float64)


def _multiply(left: Factor, right: Factor) -> Factor:
    return 0.0 if isinstance(left, float) and left == 0.0 else left * right


def _add_factors(factors: list[Factor]) -> Factor:
    return sum(factors[1:], factors[0])
