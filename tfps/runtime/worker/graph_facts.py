"""Reads the properties of a closure's graph on which the choice of its executor depends."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from traceback import FrameSummary
from typing import Any

import tensorflow as tf

from tfps.bridge.functions.traced_graph import iter_called_graphs, iter_operations
from tfps.runtime.coordinator.worker_error import select_user_frames
from tfps.runtime.worker.executor_choice import GraphFacts

CONTROL_FLOW = ("If", "While", "Case", "StatelessIf", "StatelessWhile", "StatelessCase")
CALLS = ("PartitionedCall", "StatefulPartitionedCall")
PRODUCTS = ("MatMul", "BatchMatMulV2", "BatchMatMul", "BatchMatMulV3")
ELEMENTWISE = (
    *("Add", "AddV2", "Sub", "Mul", "RealDiv", "DivNoNan", "Maximum", "Minimum", "Pow", "BiasAdd"),
    *("SquaredDifference", "Greater", "GreaterEqual", "Less", "LessEqual", "SelectV2"),
    *("LogicalAnd", "LogicalOr"),
)
# Checks of tfps itself, whose messages name the table.
OWN_CHECKS = ("check_ids", "check_rows")
# Operations that cannot fail, whatever their inputs are.
SAFE = frozenset(
    [
        *("Const", "Identity", "IdentityN", "NoOp", "Placeholder", "ReadVariableOp", "Shape"),
        *("Size", "Rank", "Cast", "Neg", "Abs", "Sign", "Square", "Sqrt", "Rsqrt", "Exp", "Log"),
        *("Log1p", "Relu", "Relu6", "Elu", "Selu", "LeakyRelu", "Sigmoid", "Tanh", "Softplus"),
        *("Softsign", "Softmax", "LogSoftmax", "Erf", "Reciprocal", "Sin", "Cos", "Floor"),
        *("Round", "OnesLike", "ZerosLike", "StopGradient", "LogicalNot", "IsNan", "IsFinite"),
        *("Mean", "Sum", "Max", "Min", "Prod", "All", "Any", "ExpandDims", "L2Loss"),
        *(*CALLS, *CONTROL_FLOW),
    ]
)


def read_graph_facts(
    graph: Any, *, carrier: str, is_one_cpu: bool, chief_threads: int
) -> GraphFacts:
    """Read the facts of the graph of a closure that is being traced."""
    operations = list(iter_operations(graph))
    factors = [factor for each in operations if each.type in PRODUCTS for factor in each.inputs]
    return GraphFacts(
        kinds=frozenset(
            each.type
            for each in operations
            if not each.name.rpartition("/")[2].startswith(OWN_CHECKS)
        ),
        carrier=carrier,
        is_one_cpu=is_one_cpu,
        chief_threads=chief_threads,
        calls_outside_loop=any(each.type in CALLS for each in graph.get_operations()),
        depth=_measure_depth(graph),
        largest_matrix=max((factor.shape.num_elements() or 0 for factor in factors), default=0),
        unnamed_operation=next((each.name for each in operations if _needs_name(each)), ""),
    )


def _measure_depth(graph: Any) -> int:
    """Return how many conditions and calls are inside one another; loops run on their thread."""
    return max(
        (
            max(map(_measure_depth, iter_called_graphs(each))) + ("While" not in each.type)
            for each in graph.get_operations()
            if each.type in (*CONTROL_FLOW, *CALLS)
        ),
        default=0,
    )


def _needs_name(operation: Any) -> bool:
    """Return whether an operation may fail and its error then shows more than the reason.

    That is a line of the user's; or the name of a layer, if only a batch knows one of the sizes.
    """
    inner_sizes = _get_inner_sizes(operation)
    if inner_sizes.count(None) == 1:
        return True
    return not _is_safe(operation, inner_sizes) and _is_users(operation)


def _is_safe(operation: Any, inner_sizes: Sequence[int | None]) -> bool:
    """Return whether no values or sizes of an operation's inputs are an error."""
    if operation.type in ELEMENTWISE:
        return _can_broadcast([tensor.shape for tensor in operation.inputs])
    return operation.type in SAFE or (bool(inner_sizes) and None not in inner_sizes)


def _get_inner_sizes(operation: Any) -> list[int | None]:
    """Return the sizes that the two factors of a product must have in common; else nothing."""
    if operation.type != "MatMul" or any(x.shape.rank is None for x in operation.inputs):
        return []
    left, right = (tensor.shape.as_list() for tensor in operation.inputs)
    return [
        left[1 - operation.get_attr("transpose_a")],
        right[int(operation.get_attr("transpose_b"))],
    ]


def _can_broadcast(shapes: Sequence[tf.TensorShape]) -> bool:
    """Return whether shapes fit whatever their unknown dimensions are; known ones were checked."""
    if any(shape.rank is None for shape in shapes):
        return False
    columns = itertools.zip_longest(*(reversed(shape.as_list()) for shape in shapes), fillvalue=1)
    return all(None not in sizes or [*sizes].count(1) >= len(sizes) - 1 for sizes in columns)


def _is_users(operation: Any) -> bool:
    """Return whether a line of the user made an operation, which an error then shows."""
    trace = operation.traceback or ()
    frames = [FrameSummary(f.filename, f.lineno, f.name, lookup_line=False) for f in trace]
    return bool(select_user_frames(frames))
