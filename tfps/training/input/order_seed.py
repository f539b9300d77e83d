"""The seed from which the order of the data follows, so that another process finds it again."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from random import Random
from typing import Any

import keras
import tensorflow as tf

from tfps.bridge.global_seed import get_global_seed


@dataclass(frozen=True)
class OrderSeed:
    """The seed of the orders of all passes over the data.

    Args:
        seed: any number.
        varies: whether each pass over arrays has another order; if the program has set a seed for
            TensorFlow, Keras draws the same one for each.
    """

    seed: int
    varies: bool

    @classmethod
    def choose(cls) -> OrderSeed:
        """Return the program's own seed, or one by chance."""
        known = get_global_seed()
        return cls(secrets.randbits(31), True) if known is None else cls(known, False)

    def for_pass(self, number: int) -> int:
        """Return the seed of the order of a pass."""
        return self.seed + number * self.varies

    def random(self, number: int = 0) -> Random:
        """Return a generator that differs for each number."""
        return Random(f"{self.seed}/{number}")


class ShuffledBatches(keras.utils.PyDataset):
    """A `PyDataset` whose batches come in an order that follows from a seed.

    Args:
        dataset: the batches.
        order: the seed.
    """

    def __init__(self, dataset: keras.utils.PyDataset, order: OrderSeed) -> None:
        super().__init__(
            workers=dataset.workers,
            use_multiprocessing=dataset.use_multiprocessing,
            max_queue_size=dataset.max_queue_size,
        )
        self._dataset, self._seed, self._epochs = dataset, order, 0
        self._shuffle()

    @property
    def num_batches(self) -> Any:
        """The number of batches."""
        return self._dataset.num_batches

    def __getitem__(self, index: int) -> Any:
        """Return a batch of the present order."""
        return self._dataset[self._order[index]]

    def on_epoch_begin(self) -> None:
        self._dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Draw the order of the next epoch, before threads read its batches ahead."""
        self._dataset.on_epoch_end()
        self._epochs += 1
        self._shuffle()

    def _shuffle(self) -> None:
        self._order = list(range(self._dataset.num_batches))
        self._seed.random(self._epochs).shuffle(self._order)


def has_unseeded_shuffle(dataset: tf.data.Dataset) -> bool:
    """Return whether a dataset, or one that it is derived from, shuffles without a seed."""
    seeds = [int(getattr(dataset, name)) for name in ("_seed", "_seed2") if hasattr(dataset, name)]
    if seeds and not any(seeds):
        return True
    return any(map(has_unseeded_shuffle, dataset._inputs()))
