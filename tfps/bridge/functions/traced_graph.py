"""Walks through the operations and functions of traced graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private

_PARTS = ("CondBranchFuncGraph", "WhileCondFuncGraph", "WhileBodyFuncGraph")


def is_branch_or_loop(graph: Any) -> bool:
    """Return whether a graph is the body of a branch or a loop."""
    return type(graph).__name__ in _PARTS


def get_called_graph(operation: Any) -> Any:
    """Return the graph of the function that a call operation runs."""
    return get_function_graph(operation, operation.get_attr("f"))


def get_function_graph(operation: Any, function: Any) -> Any:
    """Return the graph of a function that an attribute of an operation names."""
    called = operation.graph._get_function(function.name)
    if not hasattr(called, "graph"):  # a Defun, as the loop of tf.nn.ctc_loss has: a definition
        with operation.graph.as_default():  # which finds the functions that it calls here
            called.graph = private.function_def_to_graph(called.definition)
    return called.graph


def iter_called_graphs(operation: Any) -> Iterator[Any]:
    """Yield the graphs of the functions that an operation calls."""
    for value in operation.node_def.attr.values():
        for function in [value.func, *value.list.func]:
            if function.name:
                yield get_function_graph(operation, function)


def iter_operations(graph: Any) -> Iterator[Any]:
    """Yield the operations of a traced function and of all functions traced inside it."""
    for each in graphs_below(graph):
        yield from each.get_operations()


def list_captures(concrete: Any) -> list[tuple[Any, Any]]:
    """Return what a concrete function captures, in its order.

    Each is (None, the tensor), or for a call-time capture (its key, a function that returns its
    tensors for a call in the current graph).
    """
    tensors = [(None, tensor) for tensor in concrete.graph.external_captures]
    return [*tensors, *concrete.graph.function_captures.by_ref_external.items()]


def graphs_below(graph: Any) -> Iterator[Any]:
    """Yield the graph of a traced function and those of all functions traced inside it."""
    graphs, known = [graph], {id(graph)}
    while graphs:
        graph = graphs.pop()
        yield graph
        for function in graph._functions.values():
            # The graph of a function that was not traced here can be made, but has no traceback.
            nested = getattr(function, "_cached_graph", None)
            if nested is not None and id(nested) not in known:
                known.add(id(nested))
                graphs.append(nested)


def get_dataset_graphs(dataset: Any) -> list[Any]:
    """Return the graphs of the functions that a dataset and its input datasets call."""
    graphs, datasets = [], [dataset]
    while datasets:
        dataset = datasets.pop()
        graphs += [wrapper.function.graph for wrapper in dataset._functions()]
        datasets += dataset._inputs()
    return graphs


def compute_traced_value(tensor: tf.Tensor) -> tf.Tensor:
    """Compute a tensor of a function that is being traced, outside of it.

    Raises:
        ValueError: the tensor depends on an argument of the function.
    """

    @tf.function(autograph=False)
    def compute() -> tf.Tensor:
        return private.lift_to_graph.lift_to_graph([tensor], private.current_graph())[tensor]

    try:
        with tf.init_scope():
            return compute()
    except private.lift_to_graph.UnliftableError as error:
        raise ValueError(f"{tensor.name} depends on an argument") from error
