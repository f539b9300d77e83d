"""A model whose gradients are its data, so that a test can add up their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tfps.bridge.variables.named_resource import open_variable
from tfps.runtime.message.coding import CodedVector
from tfps.runtime.message.wire import get_gradient_name
from tfps.transport.packing import split_block

SHAPES = ((40, 7), (9,), (33, 5), (130,))  # by placement in turn, two on each of two servers
ITEMS = sum(int(np.prod(shape)) for shape in SHAPES)
BATCH = 2


class Linear(keras.Model):
    """Its loss is the product of weights and data, so that the data are the gradient.

    Args:
        dtype: of the weights.
    """

    def __init__(self, *, dtype: str = "float32") -> None:
        super().__init__()
        self.parts = [
            self.add_weight(shape=shape, initializer="zeros", dtype=dtype, name=f"part_{number}")
            for number, shape in enumerate(SHAPES)
        ]
        self.built = True

    def call(self, inputs: Any) -> Any:
        flat = [tf.reshape(tf.cast(part, tf.float32), [-1]) for part in self.parts]
        return tf.linalg.matvec(inputs, tf.concat(flat, 0))[:, None]

    def train_step(self, data: Any) -> dict[str, Any]:
        x, _ = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(x))
            scaled = self.optimizer.scale_loss(loss)
        weights = [part.value for part in self.parts]
        self.optimizer.apply(tape.gradient(scaled, weights), self.parts)
        return {"loss": loss}

    def moved(self) -> np.ndarray:
        """The sum that servers have subtracted so far, with a learning rate of 1."""
        return -np.concatenate([part.numpy().astype(np.float64).ravel() for part in self.parts])


def linear(
    strategy: tfps.ParameterServerStrategy, optimizer: Any = None, *, dtype: str = "float32"
) -> Linear:
    """Return a model that is compiled in the scope of a strategy."""
    with strategy.scope():
        model = Linear(dtype=dtype)
        model.compile(optimizer=optimizer or keras.optimizers.SGD(1.0))
        model.optimizer.build(model.parts)
    return model


def examples(steps: int, *, seed: int = 0) -> np.ndarray:
    """Return the examples of `steps` batches."""
    random = np.random.default_rng(seed)
    return random.normal(size=(steps * BATCH, ITEMS)).astype(np.float32)


def gradients(x: np.ndarray) -> np.ndarray:
    """Return the sum of the gradients of steps on some data."""
    return x.astype(np.float64).sum(0) / BATCH


class WorkerResiduals:
    """The residuals of gradients that the workers of a strategy keep.

    Args:
        strategy: of one process.
        coded: gradients that go through codecs.
    """

    def __init__(
        self, strategy: tfps.ParameterServerStrategy, coded: Sequence[CodedVector]
    ) -> None:
        self._runtime, self._coded = strategy.runtime, {each.digest: each for each in coded}

    def residual(self, model: Linear) -> np.ndarray:
        """The sum over all workers, of the model's weights."""
        parts = {get_gradient_name(part): np.zeros(part.shape) for part in model.parts}
        for worker in range(self._runtime.workers):
            for each in self._coded.values():
                vector = self._vector(f"residual_{each.digest}_0", worker)
                if vector is not None:
                    for name, value in split_block(vector, each.layout.blocks[0]).items():
                        parts[name] += value.numpy()
        return np.concatenate([value.ravel() for value in parts.values()])

    def _vector(self, name: str, worker: int) -> tf.Tensor | None:
        def read() -> list[tf.Tensor]:
            handle = open_variable(self._runtime.container, name)
            return [tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)]

        try:
            return self._runtime.worker_channels[worker].make_function(read, arguments=0)()[0]
        except tf.errors.OpError:  # it has not taken part
            return None
