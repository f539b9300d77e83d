"""Train on arrays: each worker has a copy, and a ticket names a slice of the epoch's order."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import tensorflow as tf

from tfps.bridge.global_seed import tracing_with_seed
from tfps.bridge.keras_private import ArrayDataAdapter, array_slicing, tree
from tfps.runtime.worker.closure_run import BatchClaim, BatchSource
from tfps.training.input.order_seed import OrderSeed

# A tensor travels in one protocol buffer, which ends at 2 GiB; a margin is left for its envelope.
MAX_RESIDENT_BYTES = 1 << 30


class ExampleOrders:
    """Draws the order of the examples for each pass, as Keras's own adapter draws it.

    Args:
        adapter: what Keras made of the arguments of `fit`.
        seed: from which all orders follow; None: they are left to chance.

    Attributes:
        number: the number of orders that were drawn.
    """

    def __init__(self, adapter: ArrayDataAdapter, seed: OrderSeed | None = None) -> None:
        self._examples, self._shuffle = int(adapter._num_samples), adapter._shuffle
        # Where an order is drawn as a whole, it comes as a whole: workers wait for it.
        is_whole = self._shuffle != "batch"
        self._size = self._examples if is_whole else int(adapter._batch_size)
        self._seed, self.number = seed, 0
        self._next: tf.Tensor | None = None
        self._dataset: Iterable[Any] | None = None
        if not self._shuffle:
            self._next = tf.range(self._examples, dtype=tf.int64)

    def draw_ahead(self) -> None:
        """Draw the next order early, since TensorFlow takes time to make the pipeline."""
        if self._next is None:
            parts = [tree.flatten(indices)[0] for indices in self._make_dataset()]
            self._next = tf.cast(tf.concat(parts, 0), tf.int64)

    def _make_dataset(self) -> Iterable[Any]:
        if self._seed is not None:
            with tracing_with_seed(self._seed.for_pass(self.number)):
                return self._trace_dataset()
        if self._dataset is None:
            self._dataset = self._trace_dataset()
        return self._dataset

    def _trace_dataset(self) -> Iterable[Any]:
        indices = np.arange(self._examples)
        adapter = ArrayDataAdapter(indices, batch_size=self._size, shuffle=self._shuffle)
        return cast("Iterable[Any]", adapter.get_tf_dataset())

    def draw(self) -> tf.Tensor:
        """Return the order of the next pass, shuffled as `fit` asks for: all indices, int64."""
        self.draw_ahead()
        order = self._next
        if self._shuffle:
            self._next = None
        self.number += 1
        return order


class ArraysPass:
    """The order of the examples in one pass.

    The order is drawn on first use. Keras begins a new pass at the end of each epoch and mostly
    throws it away: such a pass draws no order and waits for no task.

    Args:
        orders: where it is drawn from.
    """

    def __init__(self, orders: ExampleOrders) -> None:
        self._orders = orders

    @functools.cached_property
    def indices(self) -> tf.Tensor:
        """The indices of all examples in this order, int64."""
        return self._orders.draw()


class ResidentArrays(BatchSource):
    """Dense arrays, copied to each worker once; the order of an epoch travels as indices.

    The order is drawn by Keras's own adapter over ``arange(n)``, so one worker sees the batches of
    plain Keras in its order, and several see the same batches between them, each once.

    Args:
        adapter: what Keras made of the arguments of `fit`.
        seed: of the orders; None: they are left to chance.
    """

    may_widen_spec = True

    def __init__(self, adapter: ArrayDataAdapter, seed: OrderSeed | None = None) -> None:
        self._batch_size = int(adapter._batch_size)
        self.batch_spec = _spec_of_batches(adapter)
        arrays = tree.flatten(tree.lists_to_tuples(adapter._inputs))
        specs = tf.nest.flatten(self.batch_spec)
        present = [array for array in arrays if array is not None]
        self._arrays = [
            tf.cast(tf.convert_to_tensor(_to_array(array)), spec.dtype)
            for array, spec in zip(present, specs, strict=True)
        ]
        self.orders = ExampleOrders(adapter, seed)

    @staticmethod
    def can_hold(adapter: Any) -> bool:
        """Return whether the input is dense arrays small enough to lie on every worker."""
        if not isinstance(adapter, ArrayDataAdapter):
            return False
        arrays = [a for a in tree.flatten(adapter._inputs) if a is not None]
        dense = all(hasattr(a, "shape") and hasattr(a, "dtype") for a in arrays) and not any(
            isinstance(a, (tf.SparseTensor, tf.RaggedTensor)) or hasattr(a, "tocoo") for a in arrays
        )
        numeric = dense and all(
            tf.as_dtype(a.dtype) != tf.string for a in arrays if _is_supported_array(a)
        )
        return dense and numeric and all(_array_bytes(a) <= MAX_RESIDENT_BYTES for a in arrays)

    @property
    def description(self) -> str:
        return "arrays, copied to every worker once"

    def trace_key(self) -> Any:
        """Return a key; closures are traced once for all inputs of equal key."""
        return ("arrays", str(self.batch_spec))

    def new_pass(self) -> ArraysPass:
        """Return the order of one pass, drawn when it is used."""
        return ArraysPass(self.orders)

    @property
    def next_pass(self) -> int:  # type: ignore[override]
        """The number of the pass whose order is drawn next."""
        return self.orders.number

    def skip_passes(self, number: int) -> None:
        self.orders.number = number

    def make_arguments(self, data_pass: ArraysPass, offset_steps: int) -> Any:
        """Return a closure's arguments: arrays, order, and (first step in the pass, batch size)."""
        numbers = tf.constant([offset_steps, self._batch_size], tf.int64)
        return (*self._arrays, data_pass.indices, numbers)

    def get_argument_specs(self, arguments: Any) -> Any:
        """Return specs without the number of examples, so that other numbers need no new trace."""
        specs = tf.nest.flatten(self.batch_spec)
        arrays = (tf.TensorSpec([None, *spec.shape[1:]], spec.dtype) for spec in specs)
        return (*arrays, tf.TensorSpec([None], tf.int64), tf.TensorSpec([2], tf.int64))

    def fetch(self, arguments: Any, claim: BatchClaim) -> tuple[tf.Tensor, Any]:
        *arrays, order, numbers = arguments
        offset, batch_size = tf.unstack(numbers)
        begin = (claim.position + offset) * batch_size
        examples = tf.shape(order, out_type=tf.int64)[0]
        is_found = tf.logical_and(claim.ticket >= 0, begin < examples)
        begin = tf.where(is_found, begin, 0)
        length: Any = tf.nest.flatten(self.batch_spec)[0].shape[0]
        if length is None:  # the last batch may be shorter
            length = tf.minimum(examples - begin, batch_size)
        indices = tf.slice(order, [begin], [length])
        parts = [tf.gather(array, indices) for array in arrays]
        return is_found, tf.nest.pack_sequence_as(self.batch_spec, parts)


def _spec_of_batches(adapter: ArrayDataAdapter) -> Any:
    """Return the element spec of Keras's dataset of batches; with a size that all batches have.

    It is read from a dataset of one row: one of all rows would copy the arrays once more.
    """
    row = tree.map_structure(lambda a: None if a is None else a[:1], adapter._inputs)
    alone = ArrayDataAdapter(*_to_tuple(row), batch_size=1).get_tf_dataset().element_spec
    is_even = adapter._num_samples % adapter._batch_size == 0
    length = adapter._batch_size if is_even else None

    def of_batch(spec: Any) -> Any:
        if not isinstance(spec, tf.TensorSpec):
            return spec
        return tf.TensorSpec([length, *spec.shape[1:]], spec.dtype)

    return tf.nest.map_structure(of_batch, alone)


def _to_tuple(inputs: Any) -> tuple[Any, ...]:
    """Return the inputs as a tuple, also where Keras has packed x alone."""
    return inputs if isinstance(inputs, tuple) else (inputs,)


def _to_array(array: Any) -> Any:
    """Convert Pandas objects to arrays, as Keras does."""
    sliceables = tree.flatten(
        array_slicing.convert_to_sliceable(array, target_backend="tensorflow")
    )
    return sliceables[0] if tf.is_tensor(sliceables[0]) else np.asarray(sliceables[0])


def _is_supported_array(array: Any) -> bool:
    try:
        tf.as_dtype(array.dtype)
    except TypeError:
        return False
    return True


def _array_bytes(array: Any) -> int:
    item_bytes = tf.as_dtype(array.dtype).size if _is_supported_array(array) else 8
    return math.prod(array.shape) * int(item_bytes)
