"""Name a model's variables alike in every process, whichever other models it has made."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import keras

from tfps.bridge.keras_private import naming
from tfps.optimizers.wrapped import iter_slots

# Keras numbers a process's variables without a name.
_UNNAMED = re.compile(r"variable(_\d+)?$")


def named_variables(model: Any, *, optimizer: bool = True) -> dict[str, Any]:
    """Return a model's Keras variables by their names in a checkpoint.

    Its weights, the state of its seed generators and of its optimizer; not of metrics. A name is
    the path from the model through the kinds of its layers, with a number if a layer has several of
    a kind; Keras's own names count all models of a process. A slot has the name of its variable.

    Args:
        model: a built model.
        optimizer: with the state of its optimizer, if it has one.
    """
    name_of_variable: dict[int, str] = {}
    named: dict[str, Any] = {}
    for name, variable in _with_untracked_variables(model, _variables_of_layer(model, "model")):
        if id(variable) not in name_of_variable:
            name_of_variable[id(variable)] = name
            named[name] = variable
    if optimizer and (built := optimizer_of(model)) is not None:
        for name, variable in _variables_of_optimizer(built, "optimizer", name_of_variable):
            named.setdefault(name, variable)
    return named


def optimizer_of(model: Any) -> Any:
    """Return a model's optimizer; None if it was compiled without one, or not at all."""
    return getattr(model, "optimizer", None)


def _with_untracked_variables(
    model: Any, listed: Iterator[tuple[str, Any]]
) -> Iterator[tuple[str, Any]]:
    """Add variables that a layer keeps outside of Keras's lists, named by their positions."""
    listed_ids: set[int] = set()
    for name, variable in listed:
        listed_ids.add(id(variable))
        yield name, variable
    for position, variable in enumerate(model.variables):
        if id(variable) not in listed_ids:
            yield f"model/variables/{position}", variable


def _variables_of_layer(layer: Any, path: str) -> Iterator[tuple[str, Any]]:
    own = [*layer._trainable_variables, *layer._non_trainable_variables]
    own += [generator.state for generator in layer._seed_generators]
    names = _make_unique("variable" if _UNNAMED.match(v.name) else v.name for v in own)
    for name, variable in zip(names, own, strict=True):
        yield f"{path}/{name}", variable
    inner = list(layer._flatten_layers(include_self=False, recursive=False))
    kinds = _make_unique(naming.to_snake_case(type(each).__name__) for each in inner)
    for kind, each in zip(kinds, inner, strict=True):
        yield from _variables_of_layer(each, f"{path}/{kind}")


def _variables_of_optimizer(
    optimizer: Any, path: str, name_of_variable: dict[int, str]
) -> Iterator[tuple[str, Any]]:
    named: set[int] = set()
    for attribute, value in list(optimizer.__dict__.items()):
        if isinstance(value, keras.Variable):
            named.add(id(value))
            yield f"{path}/{attribute.strip('_')}", value
    variables = [
        name_of_variable.get(id(variable), str(position))
        for position, variable in enumerate(optimizer._trainable_variables)
    ]
    for attribute, slots in iter_slots(optimizer):
        for name, slot in zip(variables, slots, strict=True):
            if slot is not None and id(slot) not in named:
                named.add(id(slot))
                yield f"{path}/{attribute.strip('_')}/{name}", slot
    for position, variable in enumerate(optimizer._variables):
        if id(variable) not in named:
            yield f"{path}/variables/{position}", variable
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        yield from _variables_of_optimizer(inner, f"{path}/inner_optimizer", name_of_variable)
    for position, each in enumerate(getattr(optimizer, "optimizers", ())):
        yield from _variables_of_optimizer(each, f"{path}/optimizers/{position}", name_of_variable)


def _make_unique(names: Any) -> list[str]:
    """Return unique names: equal names get a number, from the second one on."""
    counts: Counter[str] = Counter()
    numbered = []
    for name in names:
        numbered.append(f"{name}_{counts[name]}" if counts[name] else name)
        counts[name] += 1
    return numbered
