"""Gathers some rows of variables and of their slots into a separate update target."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.server_trace import keep_with_server_function
from tfps.optimizers.update_targets import UpdateTarget


def to_dense(gradient: Any) -> Any:
    """Convert a gradient to a dense tensor; missing rows become zeros."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.scatter_nd(gradient.indices[:, None], gradient.values, gradient.dense_shape)


class GatheredRows:
    """Rows of targets on a server, gathered in temporary variables of the traced function.

    An optimizer that updates these variables does the same as for the whole variables, restricted
    to the rows. Rows of several targets are concatenated, so that it computes once for all of them.
    No other rows of the variables or their slots are read or written.

    Args:
        targets: targets with rows of the same shape; no slabs.
        gradients: a `tf.IndexedSlices` for each target, with each row at most once.
    """

    def __init__(
        self, targets: Sequence[UpdateTarget], gradients: Sequence[tf.IndexedSlices]
    ) -> None:
        self._write_backs: list[Callable[[], None]] = []
        self._places = [gradient.indices for gradient in gradients]
        self.gradient = concat_rows([gradient.values for gradient in gradients])
        first = targets[0]
        self.names = [target.name for target in targets]
        self.temporary_target = first._replace(
            variable=self._gather_variables([target.variable for target in targets]),
            slots={
                name: None
                if slot is None
                else self._gather_variables([t.slots[name] for t in targets])
                for name, slot in first.slots.items()
            },
        )

    def write_back(self) -> None:
        """Trace writing the rows back to their variables and slots."""
        for write in self._write_backs:
            write()

    def _gather_variables(self, variables: Sequence[Any]) -> Any:
        """Return a copy of the first Keras variable that holds the rows of all variables."""
        natives = [variable._value for variable in variables]
        shape, dtype = natives[0].shape, natives[0].dtype
        rows = private.create_anonymous_variable(shape=[None, *shape[1:]], dtype=dtype)
        keep_with_server_function(rows)  # the function itself refers to it weakly
        sources = list(zip(natives, self._places, strict=True))
        rows.assign(concat_rows([_read_rows(*each) for each in sources]), read_value=False)

        def write_back() -> None:
            for (native, places), part in zip(
                sources, self._split_rows(rows.read_value()), strict=True
            ):
                _write_rows(native, places, part)

        self._write_backs.append(write_back)
        copy = object.__new__(type(variables[0]))
        copy.__dict__.update(variables[0].__dict__)
        copy._value, copy._shape = rows, tuple(rows.shape)
        return copy

    def _split_rows(self, rows: tf.Tensor) -> list[tf.Tensor]:
        """Split rows into those of each variable."""
        if len(self._places) == 1:
            return [rows]
        sizes = tf.stack([tf.size(places, tf.int64) for places in self._places])
        return tf.split(rows, sizes, num=len(self._places))


def gather_rows(
    targets: Sequence[UpdateTarget], gradients: Mapping[str, Any], *, together: bool
) -> list[GatheredRows]:
    """Gather the rows of the targets whose gradients are `tf.IndexedSlices`.

    Args:
        targets: the targets of one server.
        gradients: name of a target -> gradient.
        together: whether targets with rows of the same shape may be updated as one.
    """
    kinds: defaultdict[Hashable, list[UpdateTarget]] = defaultdict(list)
    for target in targets:
        if isinstance(gradients[target.name], tf.IndexedSlices):
            kinds[_get_group_key(target) if together else target.name].append(target)
    return [GatheredRows(each, [gradients[t.name] for t in each]) for each in kinds.values()]


def _get_group_key(target: UpdateTarget) -> Hashable:
    """Return a key; the rows of targets with equal keys may be updated together.

    A target with a constraint has a key of its own.
    """
    variable = target.variable
    is_alone = variable.constraint is not None or variable.overwrite_with_gradient
    slots = [(name, _get_row_spec(slot)) for name, slot in target.slots.items()]
    return target.name if is_alone else (_get_row_spec(variable), target.decays, tuple(slots))


def concat_rows(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Concatenate the rows of several variables; if they were split from a tensor, return that."""
    if len(parts) == 1:
        return parts[0]
    whole = None if tf.executing_eagerly() else _find_split_input(parts)
    if whole is not None:
        return whole
    return tf.concat(list(parts), 0)


def _find_split_input(parts: Sequence[tf.Tensor]) -> tf.Tensor | None:
    """Return the tensor that was split into exactly these parts along its first axis, or None."""
    split = parts[0].op
    if split.type != "SplitV" or tf.get_static_value(split.inputs[2]) != 0:
        return None
    outputs = [(part.op, part.value_index) for part in parts]
    all_outputs = [(split, number) for number in range(len(split.outputs))]
    return split.inputs[0] if outputs == all_outputs else None


def _get_row_spec(variable: Any) -> Hashable:
    return None if variable is None else (tuple(variable.shape[1:]), variable._value.dtype.name)


def _read_rows(native: Any, places: tf.Tensor) -> tf.Tensor:
    resource, indices = _locate_rows(native, places)
    rows = tf.raw_ops.ResourceGather(resource=resource, indices=indices, dtype=native.dtype)
    return rows if native.slab is None else tf.reshape(rows, [-1, *native.shape[1:]])


def _write_rows(native: Any, places: tf.Tensor, rows: tf.Tensor) -> None:
    resource, indices = _locate_rows(native, places)
    if native.slab is not None:
        rows = tf.reshape(rows, [-1])
    tf.raw_ops.ResourceScatterUpdate(resource=resource, indices=indices, updates=rows)
    if native.slab is not None:
        # Every later read would copy the whole slab, unless this is called.
        tf.raw_ops.DisableCopyOnRead(resource=resource)


def _locate_rows(native: Any, places: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the handle that stores a variable, and the indices of the rows in that handle."""
    if native.slab is None:
        return native.handle, places
    row_items = native.shape[1:].num_elements()
    begins = native.member.offset_items + places * row_items
    items = begins[:, None] + tf.range(row_items, dtype=tf.int64)
    return native.slab.handle, tf.reshape(items, [-1])
