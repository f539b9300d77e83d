"""What a table of embeddings is to be, and how the rows of an example become one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
from keras.src.saving import serialization_lib

from tfps.errors import ConfigError, refuse
from tfps.layers.combiner import COMBINERS


@keras.saving.register_keras_serializable("tfps")
@dataclasses.dataclass(frozen=True)
class Table:
    """A table of embeddings, which one or several features look up.

    Its names are those of `keras_rs.layers.TableConfig`, which stands in its place as well. The
    same table, combined in another way, is ``dataclasses.replace(table, combiner=None)``.

    Source: `TableConfig` of Keras Recommenders and of TensorFlow's TPU embeddings.

    Args:
        name: of the table; its layer has it too.
        vocabulary_size: rows; ids are 0 to one less.
        embedding_dim: items of a row.
        combiner: what becomes of the rows of an example: their ``"sum"``, their ``"mean"``, or
            their sum over the root of their number (``"sqrtn"``); None: they stay apart.
        initializer: of Keras, or its name; ``keras.initializers.Constant(matrix)`` begins with what
            was trained before.
        optimizer: of Keras, or its name, for `tfps.optimizers.ByTable`; None: that of the model.
        trainable: False: the table stays as it is.

    Raises:
        ConfigError: each value that cannot be, all at once.

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
            problems.append(f"name: received {self.name!r}, expected a text without '/'")
        for field in ("vocabulary_size", "embedding_dim"):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                problems.append(f"{field}: received {value!r}, expected a whole number from 1")
        if self.combiner not in COMBINERS:
            known = ", ".join(map(repr, COMBINERS))
            problems.append(f"combiner: received {self.combiner!r}, expected one of {known}")
        refuse(problems, source=f"Table {self.name!r}")

    @classmethod
    def of(cls, config: Any, *, source: str) -> Table:
        """A table, or what describes one as keras_rs does: a `TableConfig` or `FeatureConfig`.

        Args:
            config: what the user gave.
            source: the layer and feature that it was given for.

        Raises:
            ConfigError: it describes no table.
        """
        described = getattr(config, "table", config)
        if isinstance(described, Table):
            return described
        fields = [field.name for field in dataclasses.fields(cls)]
        missing = [name for name in fields[:3] if not hasattr(described, name)]
        if missing:
            raise ConfigError(
                f"received {config!r}, expected a tfps.layers.Table, or a TableConfig or "
                f"FeatureConfig of keras_rs; it has no {missing[0]}",
                source=source,
            )
        return cls(**{n: getattr(described, n) for n in fields if hasattr(described, n)})

    def differences(self, other: Table) -> list[str]:
        """What two descriptions of one table say differently; how rows are combined is no part."""
        fields = [f.name for f in dataclasses.fields(self) if f.name != "combiner"]
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in fields]
        return [
            f"{name} {mine!r} and {theirs!r}"
            for name, mine, theirs in pairs
            if mine is not theirs and _settings(mine) != _settings(theirs)
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


def _settings(value: Any) -> Any:
    """What says whether two values are alike, of which Keras's own know nothing."""
    return (type(value), value.get_config()) if hasattr(value, "get_config") else value
