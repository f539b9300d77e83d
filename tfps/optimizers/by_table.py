"""Assigns a row-wise optimizer to each embedding table, and another to all other variables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from tfps.bridge.keras_private import MultiOptimizer, refuse_missing_class, serialization_lib
from tfps.errors import ConfigError, refuse
from tfps.optimizers.sparse_updates import SparseUpdates
from tfps.optimizers.wrapped import get_nested_optimizers


@keras.saving.register_keras_serializable("tfps")
class ByTable(MultiOptimizer):
    """Updates each embedding table with its own optimizer, and all other variables with another.

    Use it if tables need other optimizers or learning rates than the dense layers. Tables are
    identified by the names of their layers: those of a `keras.layers.Embedding`, or of a
    `tfps.layers.Table` in a `tfps.layers.EmbeddingCollection`, whose ``optimizers`` has the
    optimizers of its tables. Each named table is updated only in the rows of a batch: its optimizer
    is wrapped in `tfps.optimizers.SparseUpdates`, which documents for which optimizers the results
    equal those of Keras. Tables given the same object, or the same string, share one optimizer,
    which updates those with rows of the same shape together. It is a
    `keras.optimizers.MultiOptimizer`, so each optimizer has its own learning rate and iterations.

    Source: `tf.tpu.experimental.embedding.TableConfig`, with an optimizer for each table.

    Args:
        tables: table name -> a Keras optimizer or its name.
        otherwise: the optimizer for all other variables, or its name.
        name: the name of this optimizer.

    Raises:
        ConfigError: a value is no optimizer, or its update of a row depends on other rows; lists
            all such tables. When it is built: the model has no table of a name.

    Example:

    >>> optimizer = ByTable({"users": "adagrad", "items": keras.optimizers.Adam(1e-4)}, "sgd")
    >>> [type(each).__name__ for each in optimizer.optimizers]
    ['SparseUpdates', 'SparseUpdates', 'SGD']
    """

    def __init__(
        self, tables: Mapping[str, Any], otherwise: Any = "adam", *, name: str | None = None
    ) -> None:
        refuse_missing_class("tfps.optimizers.ByTable", needs="MultiOptimizer")
        row_optimizers, problems = _wrap_row_optimizers(tables)
        try:
            otherwise = keras.optimizers.get(otherwise)
        except ValueError:
            problems.append(f"otherwise: {_describe_wrong_value(otherwise)}")
        refuse(problems, source="ByTable")
        patterns = {
            _make_path_pattern(table): optimizer for table, optimizer in row_optimizers.items()
        }
        super().__init__(keras.optimizers.OptimizerMap(otherwise, patterns), name=name)
        self._tables = list(tables)

    def build(self, variables: Sequence[Any]) -> None:
        """Create the slots of all optimizers, after a check that each table exists.

        Args:
            variables: the Keras variables that the model trains.

        Raises:
            ConfigError: the variables contain no table of a name.
        """
        paths = [variable.path for variable in variables]
        missing = [
            name
            for name in self._tables
            if not any(re.fullmatch(_make_path_pattern(name), p) for p in paths)
        ]
        if missing:
            trained = [
                path.split("/")[-2] for path in paths if re.fullmatch(_make_path_pattern(), path)
            ]
            raise ConfigError(
                f"tables: received optimizers for {missing}, expected some of {trained}, the "
                "tables that the model trains; use the names of the tables' layers, without "
                "frozen ones",
                source="ByTable",
            )
        super().build(list(variables))

    def get_config(self) -> dict[str, Any]:
        """Return the config; an optimizer that several tables share is stored once."""
        serialize = serialization_lib.serialize_keras_object
        table_optimizers = [self._optimizer_map[_make_path_pattern(name)] for name in self._tables]
        unique = list({id(each): each for each in table_optimizers}.values())
        places = [
            next(i for i, other in enumerate(unique) if other is each) for each in table_optimizers
        ]
        return {
            "tables": dict(zip(self._tables, places, strict=True)),
            "optimizers": [serialize(each) for each in unique],
            "otherwise": serialize(self._optimizer_map.default_optimizer),
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> ByTable:
        """Create the optimizer and its inner optimizers from a result of `get_config`.

        Args:
            config: a result of `get_config`.
            custom_objects: classes and functions of your own by name, as in Keras.
        """

        def deserialize(each: Any) -> Any:
            return serialization_lib.deserialize_keras_object(each, custom_objects=custom_objects)

        optimizers = [deserialize(each) for each in config["optimizers"]]
        tables = {name: optimizers[place] for name, place in config["tables"].items()}
        return cls(tables, deserialize(config["otherwise"]), name=config["name"])


def _make_path_pattern(table: str | None = None) -> str:
    """Return a regular expression for the path of a table's variable; None matches any table."""
    name = "[^/]+" if table is None else re.escape(table)
    return rf"(?:.*/)?{name}/embeddings"


def _wrap_row_optimizers(tables: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Wrap tables' optimizers in `SparseUpdates`; return them and a message for each bad value."""
    wrapped: dict[Any, Any] = {}
    row_optimizers, problems = {}, []
    for name, setting in tables.items():
        key = setting if isinstance(setting, str) else id(setting)
        try:
            if key not in wrapped:
                optimizer = keras.optimizers.get(setting)
                is_row_wise = any(
                    isinstance(each, SparseUpdates) for each in get_nested_optimizers(optimizer)
                )
                wrapped[key] = optimizer if is_row_wise else SparseUpdates(optimizer)
            row_optimizers[name] = wrapped[key]
        except ConfigError as error:
            problems += [f"{name}: {problem}" for problem in error.problems]
        except ValueError:
            problems.append(f"{name}: {_describe_wrong_value(setting)}")
    return row_optimizers, problems


def _describe_wrong_value(given: Any) -> str:
    return f"received {given!r}, expected an optimizer of Keras or its name, such as 'adagrad'"
