"""Makes functions of a graph run on one thread, one operation after the other.

By default TensorFlow passes every operation that becomes ready to a thread pool, one by one. For a
short function this takes most of the time.

While a function on one thread waits, it blocks its thread and one more for each condition around
the waiting operation, since a condition waits for its branch on another thread. Waiting for a mutex
is short, since no function waits while it holds one. But at a gate all workers may wait for long
inside of several conditions, which takes more threads than a server has. So functions with a gate
keep TensorFlow's default executor, in which waiting blocks no thread. So do functions with checks,
because the single-threaded executor does not report which operation has failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.function_pb2 import FunctionDef

# By default TensorFlow lowers these to operations such as Switch and Merge, which the
# single-threaded executor does not support.
CONTROL_FLOW = {"If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase"}
WAITING_OPERATIONS = {"QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"}
CHECKING_OPERATIONS = {"Assert", "CheckNumerics", "CheckNumericsV2"}


def suits_one_thread(function: Any) -> bool:
    """Return whether a concrete function has no gates, at which it waits, and no checks."""
    with tf.Graph().as_default() as graph:
        function.add_to_graph(graph)
    library = {each.signature.name: each for each in graph.as_graph_def().library.function}
    reached = _reachable_functions(library, function.function_def.signature.name)
    return not {node.op for each in reached for node in each.node_def} & (
        WAITING_OPERATIONS | CHECKING_OPERATIONS
    )


def run_on_one_thread(graph: tf.compat.v1.GraphDef, name: str) -> None:
    """Make every call of a function in a graph run on one thread.

    Args:
        graph: the graph that calls the function; changed in place.
        name: the name of the function in the graph's library.

    Raises:
        ValueError: the graph has no such function, or does not call it.
    """
    library = {each.signature.name: each for each in graph.library.function}
    if name not in library:
        raise ValueError(f"name: received {name!r}, expected one of {sorted(library)}")
    nodes = [*graph.node, *(node for each in library.values() for node in each.node_def)]
    calls = [
        node
        for node in nodes
        if node.op in ("PartitionedCall", "StatefulPartitionedCall")
        and node.attr["f"].func.name == name
    ]
    if not calls:
        raise ValueError(f"name: received {name!r}, expected a function that the graph calls")
    for call in calls:
        call.attr["executor_type"].s = b"SINGLE_THREADED_EXECUTOR"
    # An inlined function would not have an executor of its own.
    library[name].attr["_noinline"].b = True
    for function in _reachable_functions(library, name):
        for node in function.node_def:
            if node.op in CONTROL_FLOW:
                node.attr["_lower_using_switch_merge"].b = False


def _reachable_functions(library: Mapping[str, FunctionDef], name: str) -> Iterator[FunctionDef]:
    """Yield a function and all functions that it calls, directly or not."""
    names, known = [name], {name}
    while names:
        function = library[names.pop()]
        yield function
        for node in function.node_def:
            for value in node.attr.values():
                below = {value.func.name, *(each.name for each in value.list.func)}
                found = (below & library.keys()) - known
                names += found
                known |= found
