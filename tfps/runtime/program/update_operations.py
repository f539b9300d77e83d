"""Lists the operations that change variables, and their devices, to show where updates run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

CHANGES = ("Assign", "ResourceApply", "ResourceScatter", "ResourceStridedSliceAssign")


class UpdateOperation(NamedTuple):
    """One operation that writes a variable."""

    device: str
    operation: str  # its type, such as ``AssignAddVariableOp``
    variable: str  # the shared name


def update_operations(concrete_function: Any) -> list[UpdateOperation]:
    """Return all writes of a traced function, also those in conditions and compiled parts."""
    graph = concrete_function.graph.as_graph_def()
    functions = {function.signature.name: function for function in graph.library.function}
    handles = {
        node.name: node.attr["shared_name"].s.decode()
        for node in graph.node
        if node.op == "VarHandleOp"
    }
    return list(_walk_nodes(graph.node, handles, functions))


def _walk_nodes(
    nodes: Any, handles: Mapping[str, str], functions: Mapping[str, Any], device: str = ""
) -> Iterator[UpdateOperation]:
    for node in nodes:
        inputs = [handles.get(i.split(":")[0]) for i in node.input if not i.startswith("^")]
        if node.op.startswith(CHANGES) and inputs and inputs[0]:
            yield UpdateOperation(node.device or device, node.op, inputs[0])
        for attribute in (a for a in node.attr.values() if a.HasField("func")):
            function = functions[attribute.func.name]
            arguments = [argument.name for argument in function.signature.input_arg]
            # A conditional's first input chooses the function, and is not an argument of it.
            inner = zip(arguments, inputs[len(inputs) - len(arguments) :], strict=True)
            known = {argument: handle for argument, handle in inner if handle}
            # Compiled functions run on the device of their call.
            yield from _walk_nodes(function.node_def, known, functions, node.device or device)
