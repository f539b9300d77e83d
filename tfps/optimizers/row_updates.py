"""An optimizer that updates of a table only the rows that a batch has looked up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tfps.bridge.step_scope import current_step
from tfps.errors import ConfigError, UnsupportedError, refuse
from tfps.optimizers.by_shard import acts_by_rows
from tfps.optimizers.correction import Correction
from tfps.optimizers.elementwise import is_elementwise
from tfps.optimizers.remembering import Remembering
from tfps.optimizers.wrapped import leaves, members, slot_lists, wrappers_over
from tfps.optimizers.wrapper import Wrapper


@keras.saving.register_keras_serializable("tfps")
class RowUpdates(Wrapper):
    """Updates of the table of a `keras.layers.Embedding` only the rows that a batch has looked up.

    By default a server gives an optimizer the gradient of a whole table, zero in all other rows,
    so the numbers are Keras's and each update costs a pass over the table and its slots. With this
    wrapper it reads and writes the batch's rows and their slots alone: use it where a table is
    large, say 64 MiB and more. The numbers are the same for SGD without momentum and for Adagrad,
    both without weight decay and constraint. For the others the update is lazy: the momenta and
    averages of a row, its weight decay and its constraint act in those steps only that look the
    row up. What an optimizer has once, such as its iterations, learning rate and bias corrections,
    counts every step. That changes the training a little, and suits tables often better.

    A gradient that comes dense is applied to all rows: where the step reads the table as a whole
    too (a regularizer, tied weights), looks rows up in a branch or loop, or has made the gradient
    dense itself. Where only whole gradients travel, rows of one are refused: in scheduled functions
    that wait for all workers, divide a step between several devices, or look up and call the
    optimizer in different functions, branches or loops, on the coordinator, with local steps and
    with adaptive batches. In rounds of all workers an update touches the rows that any of them has
    looked up. Outside of a cluster it is the inner optimizer, with Keras's own update.

    Source: the lazy update is that of `LazyAdam` in TensorFlow Addons and of `SparseAdam` in
    PyTorch.

    Args:
        optimizer: an elementwise optimizer of Keras, also one in `StalenessAware`, a
            `LossScaleOptimizer` or a `MultiOptimizer`; or this one in those.
        name: of the optimizer.

    Raises:
        ConfigError: no optimizer, or one whose update of some rows is not defined by those: Lamb,
            Muon, Adafactor, one that remembers what workers were handed, a class of your own
            that does not say ``tfps_elementwise = True``, moving averages of the weights
            (``use_ema``) or ``gradient_accumulation_steps``.

    Example:

    >>> optimizer = RowUpdates(keras.optimizers.Adam(1e-3))
    >>> float(optimizer.learning_rate)
    0.0010000000474974513
    """

    def __init__(self, optimizer: Any, *, name: str | None = None) -> None:
        super().__init__(optimizer, name=name)
        self._refuse()

    def _add_slots(self, variables: list[Any]) -> None:
        self._refuse()  # a MultiOptimizer may have chosen only now

    def _refuse(self) -> None:
        refuse(list(_problems(self.inner_optimizer)), source="RowUpdates")

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """As every wrapper; on the coordinator rows of a gradient are refused."""
        grads = list(grads)
        if current_step() is None:
            variables = trainable_variables
            if variables is None:
                variables = self.inner_optimizer._trainable_variables
            for gradient, variable in zip(grads, list(variables), strict=True):
                if hasattr(getattr(variable, "_value", None), "shared_name"):
                    refuse_to_densify(self, gradient, variable)
        super().apply(grads, trainable_variables)


def _problems(optimizer: Any) -> Iterator[str]:
    """What of an optimizer cannot be restricted to rows."""
    for member in members(optimizer):
        kind = type(member).__name__
        if isinstance(member, Correction | Remembering):
            yield (
                f"optimizer: received {kind}, which compares all of a variable with what workers "
                "were handed; expected one that does not, such as StalenessAware or "
                "keras.optimizers.Adam"
            )
        elif any(leaf is member for leaf in leaves(optimizer)) and not is_elementwise(member):
            yield (
                f"optimizer: received {kind}, which may need all of a variable (a class of your "
                "own that does not says tfps_elementwise = True); expected an elementwise one, "
                "such as keras.optimizers.Adagrad or Adam"
            )
        if member.use_ema:
            yield (
                f"optimizer: received {kind}(use_ema=True), whose averages would be zero in rows "
                "that no batch has looked up; expected use_ema=False"
            )
        if member.gradient_accumulation_steps:
            yield (
                f"optimizer: received {kind}(gradient_accumulation_steps="
                f"{member.gradient_accumulation_steps}), and only the last of these batches would "
                "say which rows to update; expected None, and perhaps a larger batch"
            )


def updates_rows(optimizer: Any, variable: Any) -> bool:
    """Whether an optimizer updates of a variable only rows that came.

    Args:
        optimizer: what a step calls.
        variable: of Keras, which it trains.
    """
    return any(
        isinstance(wrapper, RowUpdates)
        for leaf in leaves(optimizer)
        if any(trained is variable for trained in leaf._trainable_variables)
        for wrapper in wrappers_over(optimizer, leaf)
    )


def gains_by_rows(optimizer: Any, table: Any) -> tuple[str, str] | None:
    """What would become of the numbers, if only rows of a table were updated; None: they are.

    Also None where they could not be.

    Args:
        optimizer: what a step calls.
        table: of Keras.

    Returns:
        The name of the optimizer's class, and a sentence.
    """
    leaf = next(
        (k for k in leaves(optimizer) if any(v is table for v in k._trainable_variables)), None
    )
    if leaf is None or updates_rows(optimizer, table) or any(_problems(optimizer)):
        return None
    acts_on_all = leaf.weight_decay is not None or table.constraint is not None
    is_exact = not acts_on_all and (
        type(leaf) is keras.optimizers.Adagrad
        or (type(leaf) is keras.optimizers.SGD and leaf.momentum == 0)
    )
    if is_exact:
        return type(leaf).__name__, "the numbers stay the same"
    return type(leaf).__name__, "the numbers change: rows that a batch has not looked up stay"


def refuse_inexact_by_rows(optimizer: Any, table: Any) -> None:
    """Look at what acts on a table of which only rows are updated.

    Args:
        optimizer: built; it updates rows of the table.
        table: of Keras.

    Raises:
        UnsupportedError: something needs more than the rows.
    """
    if not acts_by_rows(table.constraint, rank=len(table.shape)):
        raise UnsupportedError(
            f"{table.path} is updated by rows, and its constraint "
            f"{type(table.constraint).__name__} needs all of it; expected one of each row, such as "
            "keras.constraints.MaxNorm(axis=1). Take that, or train without "
            "tfps.optimizers.RowUpdates."
        )
    for leaf in leaves(optimizer):
        trained = leaf._trainable_variables
        position = next((i for i, v in enumerate(trained) if v is table), None)
        if position is None:
            continue
        for name, slots in slot_lists(leaf):
            slot = slots[position]
            if slot is not None and tuple(slot.shape) != tuple(table.shape):
                raise UnsupportedError(
                    f"{table.path} is updated by rows, and {type(leaf).__name__} has {name} of the "
                    f"shape {tuple(slot.shape)} for it; expected {tuple(table.shape)}, of which a "
                    "row belongs to each row of the table. Train without "
                    "tfps.optimizers.RowUpdates."
                )


def refuse_without_row_updates(optimizer: Any, table: Any, *, source: str) -> None:
    """Look at an optimizer that is to update rows of a table alone, wrapped or not.

    Args:
        optimizer: what the user gave.
        table: of Keras.
        source: who was given it.

    Raises:
        ConfigError: no optimizer, one that does not train the table, or one whose update of some
            rows is not defined by those.
        UnsupportedError: something else of the table needs more than the rows.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ConfigError(
            f"optimizer: received {optimizer!r}, expected a built optimizer of Keras, or None to "
            "subtract the gradients",
            source=source,
        )
    if not any(v is table for leaf in leaves(optimizer) for v in leaf._trainable_variables):
        raise ConfigError(
            f"optimizer: received {type(optimizer).__name__}, which does not train {table.path}; "
            "expected one that was built for it: call optimizer.build(variables) in "
            "strategy.scope()",
            source=source,
        )
    refuse(list(_problems(optimizer)), source=source)
    refuse_inexact_by_rows(optimizer, table)


def refuse_to_densify(optimizer: Any, gradient: Any, variable: Any) -> None:
    """Look at a gradient that is about to be made dense, where rows cannot travel.

    Args:
        optimizer: what a step calls.
        gradient: as a tape has answered it.
        variable: of Keras.

    Raises:
        UnsupportedError: it has rows, and only those were to be updated.
    """
    if isinstance(gradient, tf.IndexedSlices) and updates_rows(optimizer, variable):
        raise UnsupportedError(
            f"{variable.path}: tfps.optimizers.RowUpdates received rows of a gradient where only "
            "whole gradients travel; expected a step of fit() or a scheduled function with one "
            "device per worker, in which a keras.layers.Embedding looks the rows up where the "
            "optimizer is called, not in another function, branch or loop. Train so, or without "
            "RowUpdates; keras.optimizers.MultiOptimizer gives it to some layers alone. Rows of "
            "your own go to strategy.push_rows(name, ids, gradients, version, optimizer=...)."
        )
