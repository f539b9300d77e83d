"""Builds a model from the shapes of its first batch, without a step on the workers."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfps.bridge.method_scope import is_training
from tfps.optimizers.wrapped import assign_strategy
from tfps.runtime.program.program import refuse_outside_scope
from tfps.training.fit_strategy import FitStrategy
from tfps.training.step_compiler import StepCompiler


def build_symbolically(model: Any, strategy: FitStrategy, data_batch: Any) -> None:
    """Build the model; what only its step can build, the step builds, as in one process.

    Args:
        model: the model, which may be built already.
        strategy: its strategy.
        data_batch: the batch, or the specs of its tensors, as `train_step` receives it.
    """
    optimizer = model.optimizer
    if optimizer is not None:
        assign_strategy(optimizer, strategy)
    refuse_outside_scope(model.trainable_variables)
    if type(model).call is keras.Model.call:
        return
    attributes = model.__dict__
    is_known = optimizer is None or optimizer.built
    try:
        with strategy.scope():
            # The optimizer is built last, with the variables of all layers.
            attributes["optimizer"] = optimizer if is_known else None
            model._symbolic_build(data_batch=data_batch)
        is_called = True
    except Exception:  # noqa: BLE001 - the step raises its own, if it has one
        is_called = False
    finally:
        attributes["optimizer"] = optimizer
    is_built = all(layer.built for layer in model._flatten_layers())
    if is_called and is_built and not is_known:
        with strategy.scope():
            optimizer.build(model.trainable_variables)
        return
    if is_known and (is_called or is_built):
        return
    if is_called and not is_training():
        return  # training builds the other layers, and the optimizer
    compiler = StepCompiler(model, strategy=strategy, kind="train" if is_training() else "test")
    compiler.try_step(tf.nest.map_structure(_spec_of, data_batch))


def _spec_of(item: Any) -> Any:
    return item if item is None or isinstance(item, tf.TypeSpec) else tf.type_spec_from_value(item)
