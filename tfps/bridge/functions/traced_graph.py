"""The operations and functions inside a traced graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_PARTS = ("CondBranchFuncGraph", "WhileCondFuncGraph", "WhileBodyFuncGraph")


def is_part(graph: Any) -> bool:
    """Return whether a graph belongs to a branch or a loop, which has no call of its own."""
    return type(graph).__name__ in _PARTS


def graph_of_call(operation: Any) -> Any:
    """Return the graph of the function that a call in a traced function runs."""
    return graph_of_function(operation, operation.get_attr("f"))


def graph_of_function(operation: Any, function: Any) -> Any:
    """Return the graph of a function that an attribute of an operation names."""
    return operation.graph._get_function(function.name).graph


def operations_below(graph: Any) -> Iterator[Any]:
    """Yield the operations of a traced function and of all functions traced inside it."""
    graphs, known = [graph], {id(graph)}
    while graphs:
        graph = graphs.pop()
        yield from graph.get_operations()
        for function in graph._functions.values():
            # The graph of a function that was not traced here can be made, but has no traceback.
            below = getattr(function, "_cached_graph", None)
            if below is not None and id(below) not in known:
                known.add(id(below))
                graphs.append(below)


def graphs_of_dataset(dataset: Any) -> list[Any]:
    """Return the graphs of the functions that a dataset and its input datasets call."""
    graphs, datasets = [], [dataset]
    while datasets:
        dataset = datasets.pop()
        graphs += [wrapper.function.graph for wrapper in dataset._functions()]
        datasets += dataset._inputs()
    return graphs
