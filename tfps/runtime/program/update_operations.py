"""Which operations change variables, and on which device: the answer to who applies an update."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

CHANGES = ("Assign", "ResourceApply", "ResourceScatter", "ResourceStridedSliceAssign")


class UpdateOperation(NamedTuple):
    """One operation that writes a variable."""

    device: str
    operation: str
    variable: str


def update_operations(concrete_function: Any) -> list[UpdateOperation]:
    """All writes of a traced function, also those inside conditions and compiled parts."""
    graph = concrete_function.graph.as_graph_def()
    functions = {function.signature.name: function for function in graph.library.function}
    handles = {
        node.name: node.attr["shared_name"].s.decode()
        for node in graph.node
        if node.op == "VarHandleOp"
    }
    return list(_walk(graph.node, handles, functions))


def _walk(
    nodes: Any, handles: Mapping[str, str], functions: Mapping[str, Any], device: str = ""
) -> Iterator[UpdateOperation]:
    for node in nodes:
        inputs = [handles.get(i.split(":")[0]) for i in node.input if not i.startswith("^")]
        if node.op.startswith(CHANGES) and inputs and inputs[0]:
            yield UpdateOperation(node.device or device, node.op, inputs[0])
        for attribute in (a for a in node.attr.values() if a.HasField("func")):
            function = functions[attribute.func.name]
            arguments = [argument.name for argument in function.signature.input_arg]
            # Of a conditional the first input chooses the function, and is none of its own.
            inner = zip(arguments, inputs[len(inputs) - len(arguments) :], strict=True)
            known = {argument: handle for argument, handle in inner if handle}
            # What is compiled runs where it is called.
            yield from _walk(function.node_def, known, functions, node.device or device)
