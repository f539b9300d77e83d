"""The description of an embedding table, including how the rows of an example are combined."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras

from tfps.bridge.keras_private import serialization_lib
from tfps.errors import ConfigError, refuse
from tfps.layers.combiner import COMBINERS


@keras.saving.register_keras_serializable("tfps")
@dataclasses.dataclass(frozen=True)
class Table:
    """An embedding table that one or several features look up.

    Use it to describe the features of a `tfps.layers.EmbeddingCollection`. The arguments have the
    names of `keras_rs.layers.TableConfig`, which may be used instead. For the same table with
    another combiner use ``dataclasses.replace(table, combiner=None)``.

    Source: `TableConfig` of Keras Recommenders and of TensorFlow's TPU embeddings.

    Args:
        name: the name of the table and of its layer.
        vocabulary_size: the number of rows; valid ids are 0 to ``vocabulary_size - 1``.
        embedding_dim: the number of items of a row.
        combiner: how to combine the rows of an example: ``"sum"``, ``"mean"``, or ``"sqrtn"``, the
            sum divided by the square root of their number; None keeps all rows.
        initializer: a Keras initializer or its name; use ``keras.initializers.Constant(matrix)``
            for pretrained values.
        optimizer: a Keras optimizer or its name, for `tfps.optimizers.ByTable`; None for that of
            the model.
        trainable: whether the table is trained.

    Raises:
        ConfigError: lists every invalid value.

    Example:

    >>> Table("users", 1000, 16).combiner
    'mean'
    """

    name: str
    vocabulary_size: int
    embedding_dim: int
    combiner: str | None = "mean"
    initializer: Any = "uniform"
    optimizer: Any = None
    trainable: bool = True

    def __post_init__(self) -> None:
        problems = []
        if not isinstance(self.name, str) or not self.name or "/" in self.name:
            problems.append(f"name: received {self.name!r}, expected a string without '/'")
        for field in ("vocabulary_size", "embedding_dim"):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                problems.append(f"{field}: received {value!r}, expected a whole number from 1")
        if self.combiner not in COMBINERS:
            known = ", ".join(map(repr, COMBINERS))
            problems.append(f"combiner: received {self.combiner!r}, expected one of {known}")
        refuse(problems, source=f"Table {self.name!r}")

    @classmethod
    def convert(cls, config: Any, *, source: str) -> Table:
        """Convert a `Table`, or a `TableConfig` or `FeatureConfig` of keras_rs.

        Args:
            config: the user's value.
            source: the layer and feature, for error messages.

        Returns:
            The same object if it is a `Table`, otherwise a new one.

        Raises:
            ConfigError: the value describes no table.
        """
        described = getattr(config, "table", config)
        if isinstance(described, Table):
            return described
        fields = [field.name for field in dataclasses.fields(cls)]
        missing = [name for name in fields[:3] if not hasattr(described, name)]
        if missing:
            raise ConfigError(
                f"received {config!r} without {missing[0]}, expected a tfps.layers.Table, or a "
                "TableConfig or FeatureConfig of keras_rs",
                source=source,
            )
        return cls(**{n: getattr(described, n) for n in fields if hasattr(described, n)})

    def differences(self, other: Table) -> list[str]:
        """Return a text for each setting that differs from another table's, except the combiner.

        Args:
            other: the table to compare with.
        """
        fields = [f.name for f in dataclasses.fields(self) if f.name != "combiner"]
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in fields]
        return [
            f"{name} {value!r} and {other_value!r}"
            for name, value, other_value in pairs
            if value is not other_value and _to_settings(value) != _to_settings(other_value)
        ]

    def get_config(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {
            name: serialization_lib.serialize_keras_object(value) for name, value in values.items()
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Table:
        return cls(
            **{
                name: serialization_lib.deserialize_keras_object(value)
                for name, value in config.items()
            }
        )


def _to_settings(value: Any) -> Any:
    """Return a value to compare by, since Keras's objects do not compare their settings."""
    return (type(value), value.get_config()) if hasattr(value, "get_config") else value
