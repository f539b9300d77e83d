"""A variable that is stored on a parameter server under a name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.method_scope import count_thread_write
from tfps.bridge.variables.named_resource import NamedResource
from tfps.bridge.variables.server_access import get_watch, repeat_accesses
from tfps.bridge.variables.server_trace import (
    ServerTrace,
    get_current_trace,
    get_mask,
    in_server_function,
)
from tfps.errors import UnsupportedError

# TensorFlow sends a tensor to another process as one message of at most 2 GiB.
CHUNK_BYTES = 256 * 2**20


class ServerVariable(private.BaseResourceVariable):
    """A resource variable on one parameter server, identified by container and name.

    Args:
        initial_value: a tensor, an array or a callable that returns one.
        device: the server's device, where the value is also computed if it is a callable.
        container: the job's container, so that all variables of a job are freed together.
        shared_name: the name, unique in the container.
        on_access: called before the coordinator accesses the value eagerly; the strategy drains
            the workers there, so that a callback reads one version of the value.
        existing: the shape and dtype of an existing variable of that name, which is opened with its
            value; the initial value must have the same shape and dtype.
        on_mismatch: called with a message if it has not; the variable has no value then.
        options: further arguments of a variable; ``chunk_bytes``, 256 MiB by default, is the size
            above which the coordinator reads and writes the value in parts, and ``shape`` the shape
            of the variable if its values may have other shapes than the first.
    """

    slab: Any = None  # the vector of which this variable is a segment, or None
    existed = False  # whether it existed before and was opened with its value
    excluded_from_slabs = (
        False  # whether it must not become a segment: its rows are looked up one by one
    )
    own_write_count = 0  # the number of writes by this process itself
    _tfps_chunk_bytes = CHUNK_BYTES

    def __init__(
        self,
        initial_value: Any,
        *,
        device: str,
        container: str,
        shared_name: str,
        on_access: Callable[[], None] | None = None,
        existing: tuple[tf.TensorShape, tf.DType] | None = None,
        on_mismatch: Callable[[str], None] | None = None,
        **options: Any,
    ) -> None:
        with tf.init_scope(), private.placed_on(device):
            dtype = options.pop("dtype", None)
            chunk_bytes = options.pop("chunk_bytes", CHUNK_BYTES)
            value = initial_value() if callable(initial_value) else initial_value
            large = value if isinstance(value, np.ndarray) and value.nbytes > chunk_bytes else None
            if large is not None:
                value = tf.zeros(large.shape, dtype or large.dtype)
            value = tf.convert_to_tensor(value, dtype=dtype)
            shape = options.get("shape") or value.shape
            if existing is None:
                handle = NamedResource(container, shared_name, device).write(value)
            else:
                large = None
                mismatch = _describe_mismatch(shared_name, (shape, value.dtype), existing)
                if mismatch is not None and on_mismatch is not None:
                    on_mismatch(mismatch)
                handle = private.create_variable_handle(
                    shape=shape,
                    dtype=value.dtype,
                    # The existing variable keeps its value; the other name does not exist.
                    shared_name=shared_name if mismatch is None else f"{shared_name}>mismatch",
                    container=container,
                )
        self.existed = existing is not None
        self._tfps_chunk_bytes = chunk_bytes
        self._tfps_container = container
        self._tfps_device = device
        self._tfps_on_access = on_access
        self._tfps_devices = [device]  # its own server first, then its mirrors
        super().__init__(
            trainable=options.get("trainable", True),
            shape=shape,
            dtype=value.dtype,
            handle=handle,
            name=options.get("name"),
            handle_name=shared_name,
            unique_id=shared_name,
            synchronization=options.get("synchronization"),
            aggregation=options.get("aggregation"),
            distribute_strategy=options.get("distribute_strategy"),
            in_graph_mode=False,
        )
        if large is not None:
            with tf.init_scope():
                self._write_rows(handle, large)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        repeat_accesses(cls)

    @classmethod
    def attach(cls, variable: Any) -> ServerVariable:
        """Return a `ServerVariable` for the resource of a raw `tf.Variable` on a server."""
        container, shared_name = _parse_handle_name(variable.handle)
        self = cls.__new__(cls)
        self._tfps_container = container
        self._tfps_device = variable.handle.device
        self._tfps_on_access = None
        self._tfps_devices = [variable.handle.device]
        private.BaseResourceVariable.__init__(
            self,
            trainable=variable.trainable,
            shape=variable.shape,
            dtype=variable.dtype,
            handle=variable.handle,
            name=variable.name,
            handle_name=shared_name,
            unique_id=shared_name,
            in_graph_mode=False,
        )
        return self

    @property
    def shared_name(self) -> str:
        return self._unique_id

    @property
    def device(self) -> str:
        return self._tfps_device

    @property
    def handle(self) -> tf.Tensor:
        if (current := get_current_trace()) is not None:
            return self._open_by_name(current)
        if self._tfps_on_access is not None and tf.executing_eagerly():
            self._tfps_on_access()
        return self._handle

    def _open_by_name(self, current: ServerTrace) -> tf.Tensor:
        if current.device not in self._tfps_devices:
            raise UnsupportedError(
                f"an optimizer, a schedule or a constraint: received {self.name}, a variable of "
                f"{self._tfps_device}, in code that {current.device} runs, expected one of its "
                "own. Make it a tf.Variable before the scope: each server then has a copy."
            )
        if self.shared_name not in current.handles:
            with current.graph.as_default(), tf.control_dependencies(None):
                current.handles[self.shared_name] = private.create_variable_handle(
                    shape=self._shape,
                    dtype=self._dtype,
                    shared_name=self.shared_name,
                    container=self._tfps_container,
                )
        return current.handles[self.shared_name]

    def reopen_handle(self) -> None:
        """Open the handle again after a restart of the server."""
        with tf.init_scope(), private.placed_on(self._tfps_device):
            self._handle = private.create_variable_handle(
                shape=self._shape,
                dtype=self._dtype,
                shared_name=self.shared_name,
                container=self._tfps_container,
            )

    def create_mirrors(self, devices: tuple[str, ...]) -> None:
        """Create copies on other servers, for optimizer counters that every server needs."""
        value = self.read_value()
        for device in devices:
            if device not in self._tfps_devices:
                self._tfps_devices.append(device)
                self._write_mirror(device, value)

    def restore_from_mirror(self, device: str) -> None:
        """Copy the value from a mirror after a restart of the variable's server."""
        resource = NamedResource(self.container, self.shared_name, device)
        with tf.init_scope():
            with private.placed_on(device):
                value = tf.raw_ops.ReadVariableOp(resource=resource.handle(), dtype=self._dtype)
            # Through the chief: servers do not learn the new address of another server.
            value = tf.identity(value)
        NamedResource(self.container, self.shared_name, self._tfps_device).write(value)

    def add_to_count(self, amount: int) -> None:
        """Increase this variable, a counter, after a restart of its server."""
        with tf.init_scope():
            value = self.read_value() + tf.constant(amount, self._dtype)
        NamedResource(self.container, self.shared_name, self._tfps_device).write(value)

    def refresh_mirrors(self) -> None:
        """Copy the value to every mirror after a write that changed only the variable itself."""
        if len(self._tfps_devices) > 1:
            value = self.read_value()
            for device in self._tfps_devices[1:]:
                self._write_mirror(device, value)

    def _write_mirror(self, device: str, value: tf.Tensor) -> None:
        with private.placed_on(device):
            value = tf.identity(value)
        NamedResource(self.container, self.shared_name, device).write(value)

    @property
    def _is_large(self) -> bool:
        if not self._shape.is_fully_defined() or not self._shape.rank:
            return False
        return bool(self._rows_per_chunk() < self._shape[0])

    def _rows_per_chunk(self) -> int:
        """Return the number of rows to move in one operation, at least one."""
        row_bytes = self._shape[1:].num_elements() * self._dtype.size
        return max(1, self._tfps_chunk_bytes // max(1, row_bytes))

    def numpy(self) -> Any:
        if not tf.executing_eagerly() or not self._is_large:
            return super().numpy()
        # Not `read_value`, which fetches the whole value in one message.
        value = self._read_variable_op()
        result = np.empty(tuple(self._shape), self._dtype.as_numpy_dtype)
        for begin in range(0, self._shape[0], self._rows_per_chunk()):
            with private.placed_on(self._tfps_device):
                part = value[begin : begin + self._rows_per_chunk()]
            result[begin : begin + self._rows_per_chunk()] = part.numpy()
        return result

    def _is_on_other_device(self, value: Any) -> bool:
        if tf.is_tensor(value) and not isinstance(value, tf.Variable):
            return bool(value.device != self._tfps_device)
        return isinstance(value, np.ndarray)

    def _write_rows(self, handle: tf.Tensor, value: Any) -> None:
        for begin in range(0, self._shape[0], self._rows_per_chunk()):
            end = min(begin + self._rows_per_chunk(), self._shape[0])
            part = tf.convert_to_tensor(value[begin:end], self._dtype)
            with private.placed_on(self._tfps_device):
                tf.raw_ops.ResourceStridedSliceAssign(
                    ref=handle, begin=[begin], end=[end], strides=[1], value=tf.identity(part)
                )

    def count_write(self) -> None:
        """Count a write of this process; does nothing while tracing."""
        if tf.executing_eagerly():
            self.own_write_count += 1
            count_thread_write()

    def assign(
        self, value: Any, use_locking: Any = None, name: Any = None, read_value: bool = True
    ) -> Any:
        self.count_write()
        if tf.executing_eagerly() and self._is_large and self._is_on_other_device(value):
            self._shape.assert_is_compatible_with(value.shape)
            self._write_rows(self.handle, value)
            self.refresh_mirrors()
            return self if read_value else None
        if (mask := get_mask()) is not None:
            value = tf.where(mask, value, self.read_value())
        if in_server_function() and self._shape.rank and self._shape[0] is None:
            value = self._hide_row_count(value)
        result = super().assign(value, use_locking=use_locking, name=name, read_value=read_value)
        if tf.executing_eagerly():
            self.refresh_mirrors()
        return result

    def _hide_row_count(self, value: Any) -> tf.Tensor:
        """Hide the number of rows of a value from Grappler, TensorFlow's graph optimizer.

        Grappler takes the shape in one assignment of a graph for the shape of all values of the
        variable, and computes sizes in advance from it.
        """
        value = tf.convert_to_tensor(value, self._dtype)
        if value.shape.rank is None or value.shape[0] is None:
            return value
        unknown = tf.minimum(tf.size(self.read_value()), 0)  # 0, but known only at run time
        return value[: value.shape[0] + unknown]

    def assign_add(self, delta: Any, *arguments: Any, **options: Any) -> Any:
        if get_mask() is not None or get_watch(self.container) is not None:
            return self.assign(self.read_value() + delta, *arguments, **options)
        self.count_write()
        return super().assign_add(delta, *arguments, **options)

    def assign_sub(self, delta: Any, *arguments: Any, **options: Any) -> Any:
        if get_mask() is not None or get_watch(self.container) is not None:
            return self.assign(self.read_value() - delta, *arguments, **options)
        self.count_write()
        return super().assign_sub(delta, *arguments, **options)

    @property
    def container(self) -> str:
        return self._tfps_container

    @property
    def devices(self) -> tuple[str, ...]:
        """The device of the variable, then those of its mirrors."""
        return tuple(self._tfps_devices)


repeat_accesses(ServerVariable, inherited=True)


def _describe_mismatch(
    shared_name: str,
    created: tuple[tf.TensorShape, tf.DType],
    existing: tuple[tf.TensorShape, tf.DType],
) -> str | None:
    shape, dtype = existing
    if shape.is_compatible_with(created[0]) and dtype == created[1]:
        return None
    return (
        f"{shared_name}: received {created[1].name} {created[0]} from this program, expected "
        f"{dtype.name} {shape}, which the servers hold"
    )


def _parse_handle_name(handle: tf.Tensor) -> tuple[str, str]:
    """Return a resource's container and name, parsed from the text of its eager handle."""
    match = re.search(r'name="([^"]*)", device="[^"]*", container="([^"]*)"', str(handle))
    if match is None:
        raise ValueError(f"handle: received {handle}, expected an eager resource handle")
    return match.group(2), match.group(1)
