"""An optimizer that updates only the rows of a table that a batch has looked up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tfps.bridge.registered_names import register_class
from tfps.bridge.step_scope import current_step
from tfps.errors import ConfigError, UnsupportedError, refuse
from tfps.optimizers.by_shard import acts_by_rows
from tfps.optimizers.elementwise import is_elementwise
from tfps.optimizers.worker_state import WorkerStateMixin
from tfps.optimizers.wrapped import (
    get_leaf_optimizers,
    get_nested_optimizers,
    get_wrappers,
    iter_slots,
)
from tfps.optimizers.wrapper import OptimizerWrapper


@register_class
class SparseUpdates(OptimizerWrapper):
    """Updates only the rows of a `keras.layers.Embedding` table that a batch has looked up.

    Use it if a table is large, 64 MiB or more. By default a server gives the optimizer the gradient
    of the whole table, with zeros in all other rows; the results equal those of Keras, and each
    update costs a pass over the table and its slots. With this wrapper the optimizer reads and
    writes only the batch's rows and their slots. The results are the same for SGD without momentum
    and for Adagrad, both without weight decay and constraint. For other optimizers the update is
    lazy: the momenta and averages of a row, its weight decay and its constraint act only in steps
    that look the row up. Iterations, learning rate and bias corrections count every step. This
    changes the training a little, and often suits tables better.

    A dense gradient is applied to all rows. A gradient is dense if the step also reads the table as
    a whole (a regularizer, tied weights), looks rows up in a branch or loop, or makes the gradient
    dense itself. Some paths send only dense gradients and raise an error for rows: scheduled
    functions that wait for all workers, divide a step between several devices, or look up and call
    the optimizer in different functions, branches or loops; calls on the coordinator; local steps.
    In rounds of all workers an update changes the rows that any of them has looked up. Outside of a
    cluster it equals the inner optimizer, with Keras's own update.

    Source: the lazy update is that of `LazyAdam` in TensorFlow Addons and of `SparseAdam` in
    PyTorch.

    Args:
        optimizer: an elementwise Keras optimizer, also inside `StalenessAware`, a
            `LossScaleOptimizer` or a `MultiOptimizer`. They may also wrap this optimizer.
        name: the name of the optimizer.

    Raises:
        ConfigError: the value is no optimizer, or its update of a row depends on other rows: Lamb,
            Muon, Adafactor, DANA, AsyncAdam, a class of your own that does not set
            ``tfps_elementwise = True``, moving averages of the weights (``use_ema``) or
            ``gradient_accumulation_steps``.

    Example:

    >>> optimizer = SparseUpdates(keras.optimizers.Adam(1e-3))
    >>> float(optimizer.learning_rate)
    0.0010000000474974513
    """

    def __init__(self, optimizer: Any, *, name: str | None = None) -> None:
        super().__init__(optimizer, name=name)
        self._check_inner_optimizer()

    def build(self, variables: list[Any]) -> None:
        """Create the slots of the inner optimizer, and check it again.

        A `MultiOptimizer` may have chosen its optimizers only now.
        """
        super().build(variables)
        self._check_inner_optimizer()

    def _check_inner_optimizer(self) -> None:
        refuse(list(_find_problems(self.inner_optimizer)), source="SparseUpdates")

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Apply or push gradients; refuse `tf.IndexedSlices` on the coordinator.

        Args:
            grads: a gradient for each variable, with the variable's shape and dtype.
            trainable_variables: the Keras variables; None for those of `build`.

        Raises:
            UnsupportedError: a gradient consists of rows, and is applied outside of a step.
        """
        grads = list(grads)
        if current_step() is None:
            variables = trainable_variables
            if variables is None:
                variables = self.inner_optimizer._trainable_variables
            for gradient, variable in zip(grads, list(variables), strict=True):
                if hasattr(getattr(variable, "_value", None), "shared_name"):
                    refuse_to_densify(self, gradient, variable)
        super().apply(grads, trainable_variables)


def _find_problems(optimizer: Any) -> Iterator[str]:
    """Yield a message for each part of an optimizer that cannot be restricted to rows."""
    for member in get_nested_optimizers(optimizer):
        kind = type(member).__name__
        if isinstance(member, WorkerStateMixin):
            yield (
                f"optimizer: received {kind}, which moves all rows of a variable by momenta at "
                "each push; expected one that updates rows separately, such as StalenessAware or "
                "keras.optimizers.Adam. To keep it for other variables, give the table one of "
                "these with tfps.optimizers.ByTable"
            )
        elif any(leaf is member for leaf in get_leaf_optimizers(optimizer)) and not is_elementwise(
            member
        ):
            yield (
                f"optimizer: received {kind}, which may need all of a variable; expected an "
                "elementwise one, such as keras.optimizers.Adagrad or Adam. If a class of your "
                "own is elementwise, set tfps_elementwise = True in it"
            )
        if member.use_ema:
            yield (
                f"optimizer: received {kind}(use_ema=True), whose averages would be zero in rows "
                "that no batch looks up; expected use_ema=False"
            )
        if member.gradient_accumulation_steps:
            yield (
                "optimizer: received "
                f"{kind}(gradient_accumulation_steps={member.gradient_accumulation_steps}), which "
                "would update only the rows of the last batch; expected None. For the same "
                "effect use a larger batch"
            )


def updates_only_rows(optimizer: Any, variable: Any) -> bool:
    """Return whether an optimizer updates only the rows of a variable that have gradients.

    Args:
        optimizer: the optimizer that a step calls.
        variable: a Keras variable that it trains.
    """
    return any(
        isinstance(wrapper, SparseUpdates)
        for leaf in get_leaf_optimizers(optimizer)
        if any(trained is variable for trained in leaf._trainable_variables)
        for wrapper in get_wrappers(optimizer, leaf)
    )


def suggest_sparse_updates(optimizer: Any, table: Any) -> tuple[str, str] | None:
    """Return a suggestion to update only the rows of a table, with the effect on the results.

    Args:
        optimizer: the optimizer that a step calls.
        table: a Keras variable.

    Returns:
        The name of the optimizer's class and a sentence; None if the rows are already updated
        separately, or cannot be.
    """
    leaf = next(
        (
            k
            for k in get_leaf_optimizers(optimizer)
            if any(v is table for v in k._trainable_variables)
        ),
        None,
    )
    if leaf is None or updates_only_rows(optimizer, table) or any(_find_problems(optimizer)):
        return None
    acts_on_all = leaf.weight_decay is not None or table.constraint is not None
    is_exact = not acts_on_all and (
        type(leaf) is keras.optimizers.Adagrad
        or (type(leaf) is keras.optimizers.SGD and leaf.momentum == 0)
    )
    if is_exact:
        return type(leaf).__name__, "the results stay the same"
    return type(leaf).__name__, "the results change: rows without a look-up keep their values"


def refuse_inexact_row_updates(optimizer: Any, table: Any) -> None:
    """Check that the constraint and the slots of a table allow updates of single rows.

    Args:
        optimizer: a built optimizer that updates rows of the table.
        table: a Keras variable.

    Raises:
        UnsupportedError: a constraint or a slot needs more than the rows.
    """
    if not acts_by_rows(table.constraint, rank=len(table.shape)):
        raise UnsupportedError(
            f"{table.path}: received the constraint {type(table.constraint).__name__}, which "
            "needs all of the table, with updates of single rows; expected one that acts on each "
            "row, such as keras.constraints.MaxNorm(axis=1). Use such a constraint, or train "
            "without tfps.optimizers.SparseUpdates."
        )
    for leaf in get_leaf_optimizers(optimizer):
        trained = leaf._trainable_variables
        position = next((i for i, v in enumerate(trained) if v is table), None)
        if position is None:
            continue
        for name, slots in iter_slots(leaf):
            slot = slots[position]
            if slot is not None and tuple(slot.shape) != tuple(table.shape):
                raise UnsupportedError(
                    f"{table.path}: received {name} of shape {tuple(slot.shape)} from "
                    f"{type(leaf).__name__}, with updates of single rows; expected "
                    f"{tuple(table.shape)}, a row for each row of the table. Train without "
                    "tfps.optimizers.SparseUpdates."
                )


def refuse_without_row_updates(optimizer: Any, table: Any, *, source: str) -> None:
    """Check that an optimizer, wrapped or not, can update single rows of a table.

    Args:
        optimizer: the user's value.
        table: a Keras variable.
        source: the name of the function that received it, for the error.

    Raises:
        ConfigError: the value is no optimizer, does not train the table, or its update of a row
            depends on other rows.
        UnsupportedError: a constraint or a slot of the table needs more than the rows.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ConfigError(
            f"optimizer: received {optimizer!r}, expected a built optimizer of Keras, or None to "
            "subtract the gradients",
            source=source,
        )
    if not any(
        v is table for leaf in get_leaf_optimizers(optimizer) for v in leaf._trainable_variables
    ):
        raise ConfigError(
            f"optimizer: received {type(optimizer).__name__}, which does not train {table.path}; "
            "expected one built for it. Call optimizer.build(variables) in strategy.scope()",
            source=source,
        )
    refuse(list(_find_problems(optimizer)), source=source)
    refuse_inexact_row_updates(optimizer, table)


def refuse_to_densify(optimizer: Any, gradient: Any, variable: Any) -> None:
    """Raise an error if a sparse gradient under `SparseUpdates` would be converted to a dense one.

    Args:
        optimizer: the optimizer that a step calls.
        gradient: a gradient from a tape.
        variable: a Keras variable.

    Raises:
        UnsupportedError: the gradient has rows, and the optimizer is to update only these.
    """
    if isinstance(gradient, tf.IndexedSlices) and updates_only_rows(optimizer, variable):
        raise UnsupportedError(
            f"{variable.path}: received row gradients under tfps.optimizers.SparseUpdates in a "
            "place that sends only whole gradients; expected a step of fit(), or a scheduled "
            "function with one device per worker, in which keras.layers.Embedding looks up the "
            "rows directly and not in another function, branch or loop. Train so, or use "
            "SparseUpdates for some layers only (keras.optimizers.MultiOptimizer), or send rows "
            "of your own with strategy.push_rows(name, ids, gradients, version, optimizer=...)."
        )
