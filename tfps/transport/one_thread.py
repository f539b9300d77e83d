"""Functions of a graph whose operations run one after the other, on the thread that calls them.

After each asynchronous operation TensorFlow hands every operation that is ready to its pool of
threads one by one: of a short function such hand-overs are most of the time.

While such a function waits, so does its thread, and one more for each condition around the place
where it does: conditions are run by calls that wait for a branch on another thread. A mutex is
waited for by one thread, and under it nobody waits. At a gate all workers may wait at the same
time, for long, inside of several conditions: more threads than a server has. So functions with a
gate stay with TensorFlow's own executor, where waiting takes none. So do functions that check what
they compute: the executor of one thread does not say which operation has failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.function_pb2 import FunctionDef

# Otherwise TensorFlow spreads them out in the graph around, as operations that come and go; the
# executor of one thread refuses those.
CONTROL_FLOW = {"If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase"}
GATES = {"QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"}
CHECKS = {"Assert", "CheckNumerics", "CheckNumericsV2"}


def suits_one_thread(function: Any) -> bool:
    """Whether a concrete function never waits for what another request does, and checks nothing."""
    with tf.Graph().as_default() as graph:
        function.add_to_graph(graph)
    library = {each.signature.name: each for each in graph.as_graph_def().library.function}
    reached = _reached(library, function.function_def.signature.name)
    return not {node.op for each in reached for node in each.node_def} & (GATES | CHECKS)


def run_on_one_thread(graph: tf.compat.v1.GraphDef, name: str) -> None:
    """Let every call of a function do so.

    Args:
        graph: that calls it; changed in place.
        name: of the function, in the graph's library.

    Raises:
        ValueError: the graph has no such function, or nothing calls it.
    """
    library = {each.signature.name: each for each in graph.library.function}
    if name not in library:
        raise ValueError(f"received the function {name!r}, expected one of {sorted(library)}")
    nodes = [*graph.node, *(node for each in library.values() for node in each.node_def)]
    calls = [
        node
        for node in nodes
        if node.op in ("PartitionedCall", "StatefulPartitionedCall")
        and node.attr["f"].func.name == name
    ]
    if not calls:
        raise ValueError(f"received the function {name!r}, expected one that is called")
    for call in calls:
        call.attr["executor_type"].s = b"SINGLE_THREADED_EXECUTOR"
    # Without a call there is no executor of its own.
    library[name].attr["_noinline"].b = True
    for function in _reached(library, name):
        for node in function.node_def:
            if node.op in CONTROL_FLOW:
                node.attr["_lower_using_switch_merge"].b = False


def _reached(library: Mapping[str, FunctionDef], name: str) -> Iterator[FunctionDef]:
    """A function, and all that it calls, in whatever way."""
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
