"""What a worker's graph raised, told in a few lines that point at the user's own code."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from traceback import FrameSummary, format_list
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.keras_patches import OUR_PACKAGE
from tfps.errors import UnsupportedError

PYTHON_FUNCTIONS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
LIBRARIES = tuple(
    os.path.dirname(os.path.abspath(package.__file__)) + os.sep for package in (tf, keras)
)

_NODE = re.compile(r"\{\{(?:function_)?node ([^}]*)\}\}")
_FRAME = re.compile(r"\s*$|  File \"|    |<stack traces unavailable>$")
_FIRST_OF_SEVERAL = re.compile(r"\d+ root error\(s\) found\.\n\s*\(0\) (?:[A-Z_]+: )?(.*)", re.DOTALL)
# What TensorFlow appends: where in which graph, on the way through which servers.
_APPENDIX = re.compile(
    r"\n\s*\[\[|\nAdditional GRPC error information|\n\s*\(1\) | \[Op:\w+\]", re.DOTALL
)


class GraphError(NamedTuple):
    """What TensorFlow's text about an error in a graph says."""

    reason: str
    operation: str | None  # its name, where TensorFlow knows it


def parse(message: str) -> GraphError:
    r"""Find the reason and the operation in TensorFlow's text about an error in a graph.

    Args:
        message: as a function that ran on a worker raised it.

    Example:

    >>> parse("Graph execution error:\n\nDetected at node a/b defined at (most recent call last):"
    ...       "\n<stack traces unavailable>\nindex 3 is not in [0, 2)\n\t [[{{node a/b}}]]")
    GraphError(reason='index 3 is not in [0, 2)', operation='a/b')
    """
    found = _NODE.search(message)
    reason = "\n".join(_without_frames(message.split("\n"))).strip()
    if several := _FIRST_OF_SEVERAL.match(reason):
        reason = several[1]
    reason = _APPENDIX.split(reason, maxsplit=1)[0].strip()
    return GraphError(reason or message.strip(), found[1] if found else None)


def _without_frames(lines: Iterable[str]) -> Iterator[str]:
    skips = False
    for line in lines:
        if line == "Graph execution error:":
            continue
        if line.startswith("Detected at node "):
            skips = True
        elif not (skips and _FRAME.match(line)):
            skips = False
            yield line


def own_frames(frames: Sequence[FrameSummary]) -> list[FrameSummary]:
    """The lines of the user's own code that led from ours to an operation.

    What stands above the first line of ours called us, and is in the traceback of the exception.

    Args:
        frames: the outermost first.
    """
    ours = [position for position, frame in enumerate(frames) if _is_ours(frame)]
    return [
        frame
        for frame in frames[ours[0] if ours else 0 :]
        if not _is_ours(frame)
        and not frame.filename.startswith(LIBRARIES)
        and not frame.filename.startswith("<")
    ]


def _is_ours(frame: FrameSummary) -> bool:
    return frame.filename.startswith(OUR_PACKAGE)


def explain(error: Exception, graph: Any, worker: int) -> None:
    """Replace TensorFlow's text of an error, which shows every frame of every library twice.

    Args:
        error: what a function raised on a worker; only a `tf.errors.OpError` is changed.
        graph: of the function, or None where it is not known.
        worker: the index of the worker.
    """
    if not isinstance(error, tf.errors.OpError) or not _NODE.search(error.message):
        return
    told = parse(error.message)
    private.replace_message(error, _tell(told, graph, worker))


def _tell(told: GraphError, graph: Any, worker: int) -> str:
    operation = None if graph is None else find_operation(graph, told.operation or "")
    name = told.operation if operation is None else operation.name
    text = f"{told.reason}\n\nRaised on worker {worker} by {_without_loop(name or '')}"
    if operation is None:
        return text
    return f"{text} ({operation.type}){_made_at(operation)}"


def find_operation(graph: Any, name: str) -> Any:
    """The operation of a traced function that runs under a name, or None.

    A worker spreads loops and nested functions out: there the name has prefixes of theirs.
    """
    operations = {operation.name: operation for operation in private.operations_below(graph)}
    parts = name.split("/")
    names = ("/".join(parts[begin:]) for begin in range(len(parts)))
    return next((operations[each] for each in names if each in operations), None)


def _without_loop(name: str) -> str:
    return re.sub(r"^(?:while/(?:body/_\d+/)?)*", "", name)


def _made_at(operation: Any) -> str:
    frames = own_frames(
        [
            FrameSummary(frame.filename, frame.lineno, frame.name)
            for frame in operation.traceback or ()
        ]
    )
    return ", made at\n" + "".join(format_list(frames)).rstrip() if frames else ""


def refuse_python_functions(graph: Any) -> None:
    """Refuse a step that calls back into Python.

    Args:
        graph: of the traced step.

    Raises:
        UnsupportedError: naming the operation and the line that made it.
    """
    for operation in private.operations_below(graph):
        if operation.type in PYTHON_FUNCTIONS:
            raise UnsupportedError(
                "the step calls a Python function (tf.py_function or tf.numpy_function): operation "
                f"{operation.name} ({operation.type}){_made_at(operation)}\n"
                "A worker's process does not have the function, and with it in this process each "
                "step of each worker would wait for the chief. Write it with TensorFlow or "
                "keras.ops, call it in the input pipeline (Dataset.map), or compile the model with "
                "run_eagerly=True to run its steps on the chief."
            )
