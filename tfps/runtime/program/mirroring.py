"""Chooses the weights of a program that workers train by all-reduce."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import keras

from tfps.bridge.keras_private import MultiOptimizer
from tfps.bridge.variables.shards import get_shards
from tfps.errors import UnsupportedError
from tfps.optimizers.wrapped import (
    WRAPPERS,
    get_leaf_optimizers,
    get_nested_optimizers,
    get_wrappers,
    iter_slots,
)
from tfps.runtime.program.program import Program
from tfps.runtime.program.schedule import MirroredTraining

# Settings of optimizers that workers cannot apply alike, each to its part of the gradient.
UNSUITABLE = ("use_ema", "gradient_accumulation_steps")
BY_SERVERS = (
    "train it by servers, for example with placement=tfps.placement.ByPath("
    "{{{path!r}: 'least_loaded'}}, otherwise=tfps.placement.AllReduce())"
)


def mirror_weights(
    program: Program, is_mirrored: Callable[[str], bool], *, can_add_up: bool
) -> Program:
    """Return a program whose workers train some weights by all-reduce.

    Args:
        program: a program of `fit`, with its row tables.
        is_mirrored: returns whether the placement mirrors the variable of a path.
        can_add_up: whether workers can connect with each other.

    Raises:
        UnsupportedError: a weight cannot be mirrored, or an optimizer cannot train it so.
    """
    trained = [v for call in program.optimizer_calls for v in call.variables]
    weights = [v for v in trained if is_mirrored(v.path)]
    if not weights:
        return program
    if len(program.calls) != 1:
        raise UnsupportedError(
            f"placement: received AllReduce() with a training step of {len(program.calls)} "
            "exchanges, expected one that ends with its only optimizer call, outside of branches, "
            "loops and functions; call one optimizer, such as tfps.optimizers.ByTable, or train "
            "all weights by servers, without AllReduce()"
        )
    if not can_add_up:
        raise UnsupportedError(
            "placement: received AllReduce() with plain tf.distribute.Server tasks, or with "
            'transport="grpc", expected processes of tfps, whose workers connect with each other; '
            "start all tasks with `tfps run` or `tfps train`, or leave AllReduce() out"
        )
    tables = {id(table) for table in program.schedule.tables}
    for weight in weights:
        is_table = id(weight) in tables
        if is_table or len(get_shards(weight)) > 1:
            reason = "a table trained by rows" if is_table else "a variable divided among servers"
            raise UnsupportedError(
                f"{weight.path}: received AllReduce() for {reason}, expected weights of which each "
                f"worker holds a copy; {BY_SERVERS.format(path=weight.path)}"
            )
    optimizer = program.calls[0].optimizer
    members, mirrored = get_nested_optimizers(optimizer), {id(weight) for weight in weights}
    _refuse_optimizers(optimizer, mirrored)
    for weight in weights:
        weight._value.excluded_from_slabs = True
    slots = [
        slot
        for leaf in get_leaf_optimizers(optimizer)
        for _, values in iter_slots(leaf)
        for weight, slot in zip(leaf._trainable_variables, values, strict=True)
        if id(weight) in mirrored and slot is not None
    ]
    rates = [m._learning_rate for m in members if isinstance(m._learning_rate, keras.Variable)]
    variables = {id(variable): variable for variable in (*program.variables, *rates)}
    counting = [m for m in members if m._trainable_variables and not isinstance(m, WRAPPERS)]
    counts = tuple(member._iterations for member in counting)
    training = MirroredTraining(tuple(weights), (*slots, *counts), counts)
    return replace(program.with_schedule(mirrored=training), variables=list(variables.values()))


def _refuse_optimizers(optimizer: Any, mirrored: Collection[int]) -> None:
    for leaf in get_leaf_optimizers(optimizer):
        if not any(id(variable) in mirrored for variable in leaf._trainable_variables):
            continue
        for member in (*get_wrappers(optimizer, leaf), leaf):
            if found := _find_unsuitable(member, is_leaf=member is leaf):
                raise UnsupportedError(
                    f"{member.name}: received {found} with AllReduce(), expected a Keras optimizer "
                    "without it; leave it out, or train all weights by servers, without AllReduce()"
                )


def _find_unsuitable(member: Any, *, is_leaf: bool) -> str:
    """Return what an optimizer has that workers cannot apply alike; empty if there is nothing."""
    if not is_leaf and not isinstance(member, MultiOptimizer):
        return f"a {type(member).__name__}"
    return next((name for name in UNSUITABLE if getattr(member, name)), "")
