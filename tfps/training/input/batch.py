"""Specs of batches, empty batches, and batches made again from their components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

DIFFERENT = "different"  # of two types of a component: no shape is common to both


def empty_component(spec: tf.TensorSpec) -> np.ndarray[Any, Any]:
    """Return an empty value of one component, which is sent if there is no batch."""
    sizes = spec.shape.as_list() if spec.shape.rank else []
    empty = b"" if spec.dtype == tf.string else 0
    return np.full([size or 0 for size in sizes], empty, spec.dtype.as_numpy_dtype)


def empty_batch(spec: Any) -> list[tf.Tensor]:
    """Return the components of a batch with nothing in it, as tensors."""
    return [
        tf.zeros([size or 0 for size in (s.shape.as_list() if s.shape.rank else [])], s.dtype)
        for s in tf.nest.flatten(spec, expand_composites=True)
    ]


def common_spec(specs: Sequence[Any], *, each: str) -> Any:
    """Return the spec that the batches of several pipelines have in common.

    Args:
        specs: The structure of `tf.TypeSpec` of each pipeline's batches.
        each: The word for one of the pipelines in messages, such as ``"worker"``.

    Raises:
        ValueError: They differ in more than sizes.
    """
    structures = [tf.nest.map_structure(lambda _: None, spec) for spec in specs]
    flat = [tf.nest.flatten(spec) for spec in specs]
    common = (
        [None]
        if any(structure != structures[0] for structure in structures)
        else [
            one.most_specific_common_supertype(others) for one, *others in zip(*flat, strict=True)
        ]
    )
    if None in common:
        different = next(spec for spec in specs if spec != specs[0])
        raise ValueError(
            f"received batches of {specs[0]} from the dataset function for one {each} and of "
            f"{different} for another, expected the same types and ranks for all"
        )
    return tf.nest.pack_sequence_as(specs[0], common)


def relaxed_spec(spec: Any, known: Any) -> Any:
    """Return a spec for batches of two specs, or the first one if they differ in more than sizes.

    Example:

    >>> relaxed_spec(tf.TensorSpec([None, 3]), tf.TensorSpec([None, 4])).shape.as_list()
    [None, None]
    """
    structures = [tf.nest.map_structure(lambda _: None, each) for each in (spec, known)]
    if structures[0] != structures[1]:
        return spec
    pairs = zip(tf.nest.flatten(spec), tf.nest.flatten(known), strict=True)
    relaxed = [_common_type(one, other) for one, other in pairs]
    return spec if DIFFERENT in relaxed else tf.nest.pack_sequence_as(spec, relaxed)


def _common_type(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return None if one is other else DIFFERENT
    common = one.most_specific_common_supertype([other])
    return DIFFERENT if common is None or common.shape.rank is None else common


def number_batches(batches: tf.data.Dataset, *labels: tf.Tensor) -> tf.data.Dataset:
    """Return an endless dataset of (number, (*labels, whether it is a batch, *components)).

    Args:
        batches: of any structure.
        labels: the same in each element.
    """
    spec = batches.element_spec
    nothing = empty_batch(spec)

    @tf.autograph.experimental.do_not_convert
    def flat(*batch: Any) -> tuple[Any, ...]:
        parts = tf.nest.flatten(
            batch if isinstance(spec, tuple) else batch[0], expand_composites=True
        )
        return *labels, tf.constant(True), *parts

    ended = tf.data.Dataset.from_tensors((*labels, tf.constant(False), *nothing))
    return batches.map(flat).concatenate(ended.repeat()).enumerate()


def numbered_spec(components: Sequence[Any]) -> Any:
    """Return the spec of the elements of `number_batches` that is called without labels.

    An element is (number, (whether it is a batch, *components)).

    Args:
        components: the flat specs of the batches.
    """
    return tf.TensorSpec([], tf.int64), (tf.TensorSpec([], tf.bool), *components)


def restore_batch(spec: Any, components: Sequence[tf.Tensor]) -> Any:
    """Return the batch of some flat components, with the static shapes of its spec."""
    flat_specs = tf.nest.flatten(spec, expand_composites=True)
    shaped = [
        tf.ensure_shape(component, component_spec.shape)
        for component, component_spec in zip(components, flat_specs, strict=True)
    ]
    return tf.nest.pack_sequence_as(spec, shaped, expand_composites=True)
