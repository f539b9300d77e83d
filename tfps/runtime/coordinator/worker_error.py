"""Shortens the errors of a worker's graph to a few lines that point at the user's code."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from traceback import FrameSummary, format_list
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.traced_graph import iter_operations
from tfps.bridge.keras_patches import PACKAGE_FOLDER
from tfps.errors import UnsupportedError

# The operations of Keras's layers and losses that fail for values of a batch, by their reasons.
FAILING = {
    "is not in [0, ": ("GatherV2", "ResourceGather"),
    "label value": ("SparseSoftmaxCrossEntropyWithLogits",),
}
PYTHON_FUNCTIONS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
LIBRARIES = (
    PACKAGE_FOLDER,
    contextlib.__file__,  # tfps's own contexts
    *(os.path.join(os.path.dirname(os.path.abspath(p.__file__)), "") for p in (tf, keras)),
)
# Parts of tfps that call the user's script.
STARTERS = tuple(
    os.path.join(PACKAGE_FOLDER, part) for part in ("__main__", "cli", "launch", "job")
)

_NODE = re.compile(r"\{\{node ([^}]*)\}\}")
_FUNCTION = re.compile(r"\{\{function_node [^}]*\}\} ?|^From /job:\S+:$", re.MULTILINE)
_INLINED = re.compile(r"_tfg_inlined_\w+$")
_TRACE = "Traceback (most recent call last):"
_PLACE = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_FRAME = re.compile(r"\s*$|  File \"|    |<stack traces unavailable>$")
_FIRST_OF_SEVERAL = re.compile(
    r"\d+ root error\(s\) found\.\n\s*\(0\) (?:[A-Z_]+: )?(.*)", re.DOTALL
)
# TensorFlow appends where in which graph, and through which servers.
_APPENDIX = re.compile(
    r"\n\s*\[\[|\nAdditional GRPC error information|\n\s*\(1\) | \[Op:\w+\]", re.DOTALL
)


class ParsedGraphError(NamedTuple):
    """The parts of TensorFlow's text about an error in a graph."""

    reason: str
    operation: str | None  # its name, if TensorFlow knows it
    frames: tuple[FrameSummary, ...] = ()  # the user's, in a called Python function


def parse_graph_error(message: str) -> ParsedGraphError:
    r"""Find the reason and the operation in TensorFlow's text about an error in a graph.

    >>> parse_graph_error("Graph execution error:\n\nDetected at node a/b defined at (most recent "
    ...       "call last):\n<stack traces unavailable>\n"
    ...       "index 3 is not in [0, 2)\n\t [[{{node a/b}}]]")
    ParsedGraphError(reason='index 3 is not in [0, 2)', operation='a/b', frames=())
    """
    node_match = _NODE.search(message)
    reason = "\n".join(_drop_frames(message.split("\n")))
    reason = _FUNCTION.sub("", reason).strip()
    if several := _FIRST_OF_SEVERAL.match(reason):
        reason = several[1]
    reason = _APPENDIX.split(reason, maxsplit=1)[0]
    reason, *trace = reason.split(_TRACE, maxsplit=1)
    frames = [FrameSummary(f, int(n), name) for f, n, name in _PLACE.findall("".join(trace))]
    return ParsedGraphError(
        reason.strip() or message.strip(),
        node_match[1] if node_match else None,
        tuple(select_user_frames(frames)),
    )


def _drop_frames(lines: Iterable[str]) -> Iterator[str]:
    skips = False
    for line in lines:
        if line.startswith("Detected at node "):
            skips = True
        elif line != "Graph execution error:" and not (skips and _FRAME.match(line)):
            skips = False
            yield line


def select_user_frames(frames: Sequence[FrameSummary]) -> list[FrameSummary]:
    """Return the user's lines below the first line of a library, the outermost first.

    The lines above it are in an exception's traceback anyway.
    """
    starters = [k for k, frame in enumerate(frames) if frame.filename.startswith(STARTERS)]
    inner = frames[starters[-1] + 1 :] if starters else frames
    called = itertools.dropwhile(lambda frame: not frame.filename.startswith(LIBRARIES), inner)
    return [frame for frame in called if not frame.filename.startswith((*LIBRARIES, "<"))]


def shorten_message(
    error: Exception, graphs: Sequence[Any], *, place: str, is_named: bool = True
) -> None:
    """Replace the message of an error by its reason and the user's lines of code.

    Args:
        error: the error; others than those of TensorFlow stay as they are.
        graphs: the graphs of which an operation failed.
        place: where it failed.
        is_named: whether TensorFlow names the operation; it does not if one thread runs all.
    """
    if isinstance(error, tf.errors.OpError) and (not is_named or _NODE.search(error.message)):
        private.replace_message(
            error, _format_error(parse_graph_error(error.message), graphs, place)
        )


def read_servers_error(servers: Iterable[Any], data_plane: Any) -> tf.errors.OpError | None:
    """Read the latest error of a program's functions on the servers; None if there is none.

    A worker sees such an error as a lost connection.
    """
    for half in servers:
        index = half.server.index
        error: tf.errors.OpError | None = data_plane.read_error(index, half.plan_id)
        if error is not None:
            graphs = [function.graph for function in half.functions]
            shorten_message(error, graphs, place=f"on parameter server {index}")
            return error
    return None


def _format_error(error: ParsedGraphError, graphs: Sequence[Any], place: str) -> str:
    text = f"{error.reason}\n\nRaised {place}"
    operation = find_operation(graphs, error.operation or "")
    if operation is not None:
        name = _strip_loop_prefix(operation.name)
        text += f" by {name} ({operation.type}){format_creation(operation)}"
    elif error.operation:
        text += f" by {_strip_loop_prefix(error.operation)}"
    elif suspects := list(_find_suspects(graphs, error.reason)):
        text += f" by {' or '.join(suspects)}"
    if error.frames:
        text += f"\nin Python at\n{format_frames(error.frames)}"
    return text


def _find_suspects(graphs: Sequence[Any], reason: str) -> Iterator[str]:
    """Yield the operations that may have failed for a reason, if TensorFlow names none."""
    kinds = next((kinds for text, kinds in FAILING.items() if text in reason), ())
    for operation in itertools.chain.from_iterable(map(iter_operations, graphs)):
        if operation.type in kinds:
            yield f"{_strip_loop_prefix(operation.name)} ({operation.type})"


def find_operation(graphs: Sequence[Any], name: str) -> Any:
    """Return the operation of a traced function that runs under a name, or None.

    A worker inlines loops and nested functions: the name there has their names as prefixes, and
    sometimes at its end.
    """
    name = _INLINED.sub("", name)
    in_order = reversed(graphs)  # the first graph wins
    operations = {op.name: op for graph in in_order for op in iter_operations(graph)}
    parts = name.split("/")
    names = ("/".join(parts[begin:]) for begin in range(len(parts)))
    return next((operations[each] for each in names if each in operations), None)


def _strip_loop_prefix(name: str) -> str:
    return re.sub(r"^(?:while/(?:body/_\d+/)?)*", "", name)


def format_creation(operation: Any) -> str:
    """Return a text with the user's lines that made an operation; empty if there are none."""
    trace = operation.traceback or ()
    frames = select_user_frames(
        [FrameSummary(each.filename, each.lineno, each.name) for each in trace]
    )
    return f", made at\n{format_frames(frames)}" if frames else ""


def format_frames(frames: Iterable[FrameSummary]) -> str:
    """Return lines of code as in a traceback."""
    return "".join(format_list(frames)).rstrip()


def refuse_python_functions(graph: Any) -> None:
    """Raise `UnsupportedError`, with the line, if a traced step calls a Python function."""
    for operation in iter_operations(graph):
        if operation.type in PYTHON_FUNCTIONS:
            raise UnsupportedError(
                "the step calls a Python function (tf.py_function or tf.numpy_function): "
                f"operation {operation.name} ({operation.type}){format_creation(operation)}\n"
                "Workers do not have the function, and all steps would wait for the chief to run "
                "it. Write it with TensorFlow or keras.ops, call it in the input pipeline "
                "(Dataset.map), "
                "or compile the model with run_eagerly=True to run its steps on the chief."
            )
