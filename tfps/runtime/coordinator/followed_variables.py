"""Copies on servers of raw variables, which schedules, constraints and optimizers read."""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge.functions.traced_graph import get_function_graph, graphs_below, iter_operations
from tfps.bridge.step_scope import outside_step
from tfps.bridge.variables.server_trace import keep_with_server_function
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.errors import UnsupportedError
from tfps.runtime.coordinator.storage import Storage
from tfps.runtime.coordinator.worker_error import (
    PYTHON_FUNCTIONS,
    format_creation,
    format_frames,
    select_user_frames,
)

# The functions that operations call, and the first input that these get.
_CALLS = {
    "If": (("then_branch", "else_branch"), 1),
    "While": (("cond", "body"), 0),
    "PartitionedCall": (("f",), 0),
    "StatefulPartitionedCall": (("f",), 0),
}
_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"})


class FollowedVariable:
    """A raw `tf.Variable`, and its copy on each server whose functions read it.

    Args:
        handle: the handle of the variable, which is on the chief or on any server.
        storage: creates the copies.
    """

    def __init__(self, handle: tf.Tensor, storage: Storage) -> None:
        self._handle, self._storage = handle, storage
        (shape_and_type,) = handle._handle_data.shape_and_type
        self._dtype = tf.dtypes.as_dtype(shape_and_type.dtype)
        self._value = self._read()
        self._copies: dict[str, ServerVariable] = {}

    def copy_on(self, device: str) -> ServerVariable:
        """Return the copy on a server, after creating it if there is none."""
        if device not in self._copies:
            with outside_step():
                # A callable: a restarted server gets the newest value.
                self._copies[device] = self._storage.create_bookkeeping(
                    lambda: self._value, device=device, name="followed"
                )
                if self._copies[device].existed:  # with the value of an earlier chief
                    self._copies[device].assign(self._value)
        return self._copies[device]

    def refresh(self) -> None:
        """Write the variable's value to its copies, if it has changed."""
        value = self._read()
        if not np.array_equal(value, self._value):
            self._value = value
            for copy in self._copies.values():
                copy.assign(value)

    def _read(self) -> Any:
        with tf.init_scope():
            return tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=self._dtype).numpy()

    @property
    def names(self) -> set[str]:
        """The names of the copies."""
        return {copy.shared_name for copy in self._copies.values()}


class FollowedVariables:
    """The raw variables that functions on the servers read, as long as such a function exists.

    A server cannot read a variable of the chief, whose address it does not know. So it has a copy,
    and the chief compares and writes before each epoch, batch hook and scheduled function.

    Args:
        storage: creates the copies.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._followed: weakref.WeakValueDictionary[int, FollowedVariable] = (
            weakref.WeakValueDictionary()
        )

    def handle_of_copy(self, captured: tf.Tensor, device: str) -> tf.Tensor:
        """Return the handle of the copy that a server function uses instead of a raw variable.

        Args:
            captured: the handle that user code has used in the trace.
            device: the server whose function is traced.

        Raises:
            UnsupportedError: the handle is not that of a variable.
        """
        data = getattr(captured, "_handle_data", None)
        if captured.dtype != tf.resource or data is None or len(data.shape_and_type) != 1:
            frames = select_user_frames(traceback.extract_stack())
            raise _resource_error(captured, f", used at\n{format_frames(frames)}")
        followed = self._followed.get(id(captured))  # it keeps the handle, and so the id
        if followed is None:
            followed = FollowedVariable(captured, self._storage)
            self._followed[id(captured)] = followed
        keep_with_server_function(followed)
        return followed.copy_on(device).handle

    def check(self, graph: Any) -> None:
        """Raise `UnsupportedError` if a server's function needs what a server cannot have.

        Args:
            graph: the graph of the function.
        """
        for each in graphs_below(graph):
            if each.deferred_external_captures:  # such as a table that each worker has
                (captured, *_) = tf.nest.flatten(each.deferred_internal_captures)
                raise _resource_error(captured.name, format_creation(captured.op))
        for operation in iter_operations(graph):
            if operation.type in PYTHON_FUNCTIONS:
                raise UnsupportedError(
                    "an optimizer, a schedule or a constraint: received a call of Python, "
                    f"{operation.type}, which a server cannot run{format_creation(operation)}\n"
                    "expected operations of TensorFlow, or a callback that assigns the rate"
                )
        names = {name for followed in self._followed.values() for name in followed.names}
        for opened in graph.get_operations() if names else ():
            if opened.type == "VarHandleOp" and _get_shared_name(opened) in names:
                writer = _find_writer(opened.outputs[0])
                if writer is not None:
                    raise UnsupportedError(
                        "an optimizer, a schedule or a constraint: received an assignment of a "
                        f"raw tf.Variable by {writer.name} ({writer.type})"
                        f"{format_creation(writer)}\n"
                        "expected a variable of the optimizer, since each server would assign only "
                        "its copy. Create it in the optimizer's build with self.add_variable."
                    )

    def refresh(self) -> None:
        """Write the newest values of all variables to their copies."""
        for followed in list(self._followed.values()):
            followed.refresh()

    def refreshed_after(self, call: Callable[[], None]) -> Callable[[], None]:
        """Return a function that calls another one, and then refreshes the copies."""

        def called() -> None:
            call()
            self.refresh()

        return called


def _get_shared_name(opened: Any) -> str:
    name: str = opened.get_attr("shared_name").decode()
    return name


def _find_writer(handle: tf.Tensor) -> Any:
    """Return an operation that changes a resource, also in a branch or a loop; None without one."""
    for operation in handle.consumers():
        if _only_reads(operation, handle):
            continue
        functions, first = _CALLS.get(operation.type, ((), 0))
        position = next(k for k, each in enumerate(operation.inputs) if each is handle)
        graphs = [get_function_graph(operation, operation.get_attr(name)) for name in functions]
        writers = [_find_writer(graph.inputs[position - first]) for graph in graphs]
        return next((writer for writer in writers if writer is not None), operation)
    return None


def _only_reads(operation: Any, handle: tf.Tensor) -> bool:
    if operation.type in _READS:
        return True
    try:  # of a call, a branch or a loop
        read = operation.get_attr("_read_only_resource_inputs")
    except ValueError:
        return False
    return all(k in read for k, each in enumerate(operation.inputs) if each is handle)


def _resource_error(what: object, place: str) -> UnsupportedError:
    return UnsupportedError(
        f"an optimizer, a schedule or a constraint: received {what}, a resource, in code that a "
        f"server runs{place}\nexpected tensors and variables. Keep a table of values as a tensor "
        "and use tf.gather."
    )
