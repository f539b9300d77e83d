"""Tables whose rows `SparseUpdates` updates, and the same of one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import LABELS, Comparison, cross_entropy, fit
from tfps.optimizers import SparseUpdates, StalenessAware
from tfps.optimizers.wrapped import get_leaf_optimizers, iter_slots

ROWS, WIDTH = 301, 6
IDS = np.random.default_rng(5).integers(0, ROWS - 40, size=(64, 5))  # the last rows never come
IDS[:, 1] = IDS[:, 0]  # the same row twice in an example
IDS[3:40, 2] = 7  # and one in many
IDS[0, 3] = 0


Make = Callable[[], Any]


def _of_several(of_tables: Any) -> Any:
    others = keras.optimizers.SGD(0.1)
    return keras.optimizers.MultiOptimizer(
        lambda v: of_tables if "embeddings" in v.path else others
    )


EXACT: dict[str, Make] = {
    "sgd": lambda: SparseUpdates(keras.optimizers.SGD(0.5)),
    "adagrad": lambda: SparseUpdates(keras.optimizers.Adagrad(0.1)),
    "clipped": lambda: SparseUpdates(keras.optimizers.SGD(0.5, clipnorm=0.05)),
    "clipped together": lambda: SparseUpdates(keras.optimizers.Adagrad(0.5, global_clipnorm=0.05)),
}


LAZY: dict[str, Make] = {
    "momentum": lambda: SparseUpdates(keras.optimizers.SGD(0.1, momentum=0.9)),
    "adam": lambda: SparseUpdates(keras.optimizers.Adam(0.01)),
    "adamw": lambda: SparseUpdates(keras.optimizers.AdamW(0.01, weight_decay=0.1)),
    "rmsprop": lambda: SparseUpdates(keras.optimizers.RMSprop(0.01)),
    "stale": lambda: SparseUpdates(StalenessAware(keras.optimizers.Adam(0.01))),
    "in stale": lambda: StalenessAware(SparseUpdates(keras.optimizers.Adam(0.01))),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(
        SparseUpdates(keras.optimizers.Adam(0.01))
    ),
    "around scaled": lambda: SparseUpdates(
        keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01, clipnorm=0.05))
    ),
    "one of several": lambda: _of_several(SparseUpdates(keras.optimizers.Adam(0.01))),
    "around several": lambda: SparseUpdates(_of_several(keras.optimizers.Adam(0.01))),
}


def tables_model(optimizer: Make, *, rows: int = ROWS, width: int = WIDTH) -> keras.Model:
    """Two tables, one of them looked up twice."""
    inputs = keras.Input((5,), dtype="int32")
    shared = keras.layers.Embedding(rows, width, name="shared")
    own = keras.layers.Embedding(rows, width, name="own", mask_zero=True)
    merged = keras.layers.Concatenate()([shared(inputs), own(inputs), shared(inputs[:, ::-1])])
    x = keras.layers.Dense(6, "tanh")(keras.layers.Flatten()(merged))
    model = keras.Model(inputs, keras.layers.Dense(3)(x))
    model.compile(optimizer(), cross_entropy(), metrics=["accuracy"])
    return model


def lazy_model(optimizer: Make) -> keras.Model:
    model = tables_model(optimizer)
    if not tf.distribute.has_strategy():
        model.optimizer.build(model.trainable_variables)
        for leaf in get_leaf_optimizers(model.optimizer):
            leave_other_rows(leaf)
    return model


def leave_other_rows(leaf: Any) -> None:
    """Let one process apply dense gradients, and then bring back the rows that had none."""
    apply = leaf.apply

    def apply_lazily(grads: Any, trainable_variables: Any) -> None:
        variables = list(trainable_variables)
        gradients = [tf.convert_to_tensor(gradient) for gradient in grads]
        kept = []
        for gradient, variable in zip(gradients, variables, strict=True):
            if "embeddings" in variable.path:
                touched = tf.reduce_any(gradient != 0, 1, keepdims=True)
                slots = [slots[leaf._get_variable_index(variable)] for _, slots in iter_slots(leaf)]
                kept += [
                    (v, touched, tf.identity(v.value)) for v in [variable, *slots] if v is not None
                ]
        apply(gradients, variables)
        for variable, touched, before in kept:
            variable.assign(tf.where(touched, variable.value, before))

    leaf.apply = apply_lazily


def assert_only_rows_that_came_are_updated(
    strategy: tfps.ParameterServerStrategy, optimizer: Make
) -> None:
    """Train, and compare with one process and with what was there before."""
    begin: dict[str, np.ndarray] = {}

    def use(model: keras.Model) -> dict[str, Any]:
        begin["own"] = model.get_layer("own").embeddings.numpy()
        return fit(model, IDS, LABELS)

    model = Comparison(strategy).run(lambda: lazy_model(optimizer), use)
    absent = np.setdiff1d(np.arange(ROWS), IDS)
    table = model.get_layer("own").embeddings.numpy()
    np.testing.assert_array_equal(table[absent], begin["own"][absent])
    assert strategy.stats().fallback_steps == 0
