"""Reads the weights in a `tf.train.Checkpoint`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from tfps.errors import CheckpointError
from tfps.evaluation.checkpoint import UnreadableCheckpoint

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
ITERATIONS = "/_iterations/.ATTRIBUTES/VARIABLE_VALUE"
OWN_NAMES = ("root", "save_counter")  # of every tf.train.Checkpoint
MAX_NAMES_SHOWN = 3


class _Value(NamedTuple):
    variable: Any
    key: str
    shape: tuple[int, ...]


def load_tensorflow_checkpoint(path: str, model: keras.Model) -> int | None:
    """Load a model's weights without the optimizer's state, and return the optimizer's counter.

    `tf.train.Checkpoint.restore` does not change a weight that it does not find, so this function
    checks that all weights exist before it changes any.

    Args:
        path: the common prefix of the checkpoint's files.
        model: a model that is built and compiled as in the training; it may be the checkpoint's
            root or any attribute of it.

    Returns:
        The optimizer's counter; None if the checkpoint does not contain it.

    Raises:
        UnreadableCheckpoint: the checkpoint is deleted or incomplete.
        CheckpointError: it has no value, or one of another shape, for some weight.
    """
    try:
        reader = tf.train.load_checkpoint(path)
        shapes = reader.get_variable_to_shape_map()
        if OBJECT_GRAPH not in shapes:
            raise CheckpointError(
                f"{path}: received a checkpoint without an object graph, expected one of "
                "tf.train.Checkpoint; save the model with tf.train.Checkpoint(model=model)"
            )
        values = _values_for(model, path, reader)
        for value in values:
            value.variable.assign(reader.get_tensor(value.key))
        counts = [int(reader.get_tensor(key)) for key in shapes if f"/{key}".endswith(ITERATIONS)]
    except (tf.errors.OpError, IndexError) as error:  # the reader's word for truncated data
        reason = (str(error).splitlines() or [""])[0]
        raise UnreadableCheckpoint(f"{type(error).__name__}: {reason}") from error
    # Wrappers of optimizers have counters too, which may stay at 0.
    return max(counts, default=None)


def _values_for(model: keras.Model, path: str, reader: Any) -> list[_Value]:
    """Find the attribute of the checkpoint that is the model, and return its values."""
    view = tf.train.CheckpointView(path)
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(reader.get_tensor(OBJECT_GRAPH))
    shapes = reader.get_variable_to_shape_map()
    names = sorted(view.children(0), key=lambda name: name != "model")  # most call it so
    problems: list[tuple[int, str]] = []
    roots = [tf.train.Checkpoint(**{name: model}) for name in names if name not in OWN_NAMES]
    for root in (*roots, model):
        values = [
            _Value(trackable, attribute.checkpoint_key, tuple(shapes[attribute.checkpoint_key]))
            for node, trackable in view.match(root).items()
            for attribute in graph.nodes[node].attributes
            if hasattr(trackable, "assign")
        ]
        problem = _shape_problem(model, values)
        if problem is None:
            skipped = {id(variable) for variable in _optimizer_variables(model)}
            return [value for value in values if id(value.variable) not in skipped]
        problems.append((len(values), problem))
    raise CheckpointError(f"{path} does not fit the model: {max(problems)[1]}")


def _shape_problem(model: keras.Model, values: list[_Value]) -> str | None:
    stored_shapes = {id(value.variable): value.shape for value in values}
    missing, different = [], []
    for weight in model.weights:
        shape = stored_shapes.get(id(weight))
        if shape is None:
            missing.append(weight.path)
        elif shape != tuple(weight.shape):
            different.append(
                f"{weight.path} has the shape {tuple(weight.shape)}, and {shape} in the checkpoint"
            )
    if different:
        names = "; ".join(different[:MAX_NAMES_SHOWN])
        return f"{names}. Build the model as in the training"
    if not missing:
        return None
    names = ", ".join(missing[:MAX_NAMES_SHOWN]) + (", ..." * (len(missing) > MAX_NAMES_SHOWN))
    return (
        f"it has no value for {len(missing)} of {len(model.weights)} weights ({names}). It "
        "belongs to another model, or the model keeps these layers in a list or a dict, which "
        "Keras 3 leaves out of a tf.train.Checkpoint: make them attributes, or save with "
        "keras.callbacks.ModelCheckpoint('NAME.weights.h5', save_weights_only=True)"
    )


def _optimizer_variables(model: keras.Model) -> Iterator[Any]:
    if model.optimizer is not None:
        yield from model.optimizer.variables
