"""A layer that looks up many features in embedding tables."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from tfps.bridge.id_check import RequestedIds, check_ids
from tfps.bridge.keras_private import serialization_lib
from tfps.errors import ConfigError, refuse
from tfps.layers.feature_ids import FeatureIds, refuse_ids, symbolic_output
from tfps.layers.table import Table


@keras.saving.register_keras_serializable("tfps")
class EmbeddingCollection(keras.layers.Layer):
    """Looks up features in embedding tables, and combines the rows of each example into one.

    Use it for models with many categorical features, or with large tables. The input is a dict from
    the names of the features to the ids of a batch: a vector with one id per example, a matrix, or
    ragged or sparse ids if examples have different numbers of ids. The output is a dict with the
    same names: one row per example, or for tables with ``combiner=None`` all rows, ragged like the
    ids. A call may contain only some of the features, so that two towers of a model can share the
    tables of one collection.

    Each table is a `keras.layers.Embedding` in ``tables``, by its name; its variable has the path
    ``COLLECTION/TABLE/embeddings``. With parameter servers only the rows of a batch are sent, for
    all features in one request to each server. In one process, and in an exported model, the layer
    is plain TensorFlow. Ids outside of a table, also negative ones, raise an error that names the
    feature.

    Source: `EmbeddingBagCollection` of TorchRec and `DistributedEmbedding` of Keras Recommenders.

    Args:
        features: feature name -> its table: a `tfps.layers.Table`, or a ``TableConfig`` or
            ``FeatureConfig`` of keras_rs. Features whose tables have the same name share a table.
        shared: another collection whose tables of the same names are used. Saved Keras models keep
            the sharing.
        options: arguments of every Keras layer, such as its name.

    Raises:
        ConfigError: there are no features, a value is no table, or a table is described in two
            ways. In a call: unknown features; ids that are no integers; ragged ids of a rank above
            2; weights of another form than the ids.
        tf.errors.InvalidArgumentError: ids outside of a table.

    Example:

    >>> users = Table("users", 10, 4, initializer="ones")
    >>> layer = EmbeddingCollection({"user": users, "friends": users})
    >>> rows = layer({"user": tf.constant([1, 2]), "friends": tf.ragged.constant([[3, 4], []])})
    >>> rows["friends"].numpy().tolist()
    [[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]
    """

    def __init__(
        self,
        features: Mapping[str, Any],
        *,
        shared: EmbeddingCollection | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if not isinstance(features, Mapping) or not features:
            raise ConfigError(
                f"features: received {features!r}, expected a table for each feature, such as "
                "{'user': tfps.layers.Table('users', 1000, 16)}",
                source=self.name,
            )
        self.features = {
            name: Table.convert(config, source=self._feature_text(name))
            for name, config in features.items()
        }
        self.shared = shared
        refuse(list(_iter_contradictions(self.features, shared)), source=self.name)
        if shared is not None and not shared.built:
            shared.build()  # now, so that its tables get names of that collection
        known: dict[str, keras.layers.Embedding] = {} if shared is None else dict(shared.tables)
        self.tables: dict[str, keras.layers.Embedding] = {
            table.name: known.get(table.name) or self._find_layer(table)
            for table in self.features.values()
        }

    def _find_layer(self, table: Table) -> keras.layers.Embedding:
        return keras.layers.Embedding(
            table.vocabulary_size,
            table.embedding_dim,
            embeddings_initializer=table.initializer,
            name=table.name,
            dtype=self.dtype_policy,
            trainable=table.trainable,
        )

    @property
    def optimizers(self) -> dict[str, Any]:
        """The optimizers of trained tables by table name, for `tfps.optimizers.ByTable`."""
        return {
            table.name: table.optimizer
            for table in self.features.values()
            if table.optimizer is not None and table.trainable
        }

    def build(self, input_shape: Any = None) -> None:
        """Create all tables, also those of features that the first call does not contain.

        Args:
            input_shape: not used; Keras passes it to every layer.
        """
        for table in self.tables.values():
            if not table.built:
                table.build()

    def call(self, inputs: Mapping[str, Any], weights: Any = None) -> dict[str, Any]:
        """Look up the rows of a batch, and combine those of each example.

        Args:
            inputs: feature name -> ids, integers of shape ``[batch]`` or ``[batch, ids]``, dense,
                ragged or sparse.
            weights: feature name -> float weights of the ids, in the same form; a feature without
                an entry has weights of 1.

        Returns:
            Feature name -> rows of shape ``[batch, embedding_dim]``; for tables with
            ``combiner=None`` the shape of the ids and ``embedding_dim``.

        Raises:
            ConfigError: the inputs are invalid, as the class's documentation says.
            tf.errors.InvalidArgumentError: an id is not in its table.
        """
        self._check_inputs(inputs, weights)
        asked = {
            name: FeatureIds.from_inputs(
                ids,
                (weights or {}).get(name),
                dtype=self.compute_dtype,
                source=self._feature_text(name),
            )
            for name, ids in inputs.items()
        }
        check = check_ids(
            RequestedIds(each.ids, self.features[name].vocabulary_size, self._describe_use(name))
            for name, each in asked.items()
        )
        outputs = {}
        for name, each in asked.items():
            table = self.features[name]
            with tf.control_dependencies([] if check is None else [check]):
                ids = tf.identity(each.ids)
            outputs[name] = each.output(self.tables[table.name](ids), table.combiner)
        return outputs

    def compute_output_spec(self, inputs: Mapping[str, Any], weights: Any = None) -> Any:
        self._check_inputs(inputs, weights)
        return {
            name: symbolic_output(
                ids,
                self.features[name].combiner,
                width=self.features[name].embedding_dim,
                dtype=self.compute_dtype,
            )
            for name, ids in inputs.items()
        }

    def get_config(self) -> dict[str, Any]:
        features = {
            name: serialization_lib.serialize_keras_object(table)
            for name, table in self.features.items()
        }
        shared = serialization_lib.serialize_keras_object(self.shared)
        return {**super().get_config(), "features": features, "shared": shared}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> EmbeddingCollection:
        features = {
            name: serialization_lib.deserialize_keras_object(table)
            for name, table in config["features"].items()
        }
        shared = serialization_lib.deserialize_keras_object(config.get("shared"))
        return cls(**{**config, "features": features, "shared": shared})

    def _feature_text(self, name: str) -> str:
        return f"{self.name}: feature {name!r}"

    def _describe_use(self, name: str) -> str:
        # Without quotation marks, which TensorFlow would show with a backslash.
        return f"{self.name}: feature {name}: ids for the table {self.features[name].name}"

    def _check_inputs(self, inputs: Any, weights: Any) -> None:
        """Raise `ConfigError` for invalid inputs of a call."""
        for given, what in ((inputs, "ids"), (weights, "weights")):
            if given is None and what == "weights":
                continue
            if not isinstance(given, Mapping):
                raise ConfigError(
                    f"{what}: received {type(given).__name__}, expected a dict from feature to "
                    f"tensor; the features are {list(self.features)}",
                    source=self.name,
                )
            allowed = list(self.features if what == "ids" else inputs)
            for name in given:
                if name not in allowed:
                    near = difflib.get_close_matches(str(name), allowed, n=1)
                    hint = f"; did you mean {near[0]!r}?" if near else ""
                    raise ConfigError(
                        f"{what}: received the feature {name!r}, expected features of "
                        f"{allowed}{hint}",
                        source=self.name,
                    )
        for name, ids in inputs.items():
            refuse_ids(ids, self.features[name].combiner, source=self._feature_text(name))


def _iter_contradictions(
    features: Mapping[str, Table], shared: EmbeddingCollection | None
) -> Iterator[str]:
    """Yield a message for each table that features, also of two collections, describe unequally."""
    described: dict[str, tuple[str, Table]] = {}
    if shared is not None:
        for feature, table in shared.features.items():
            described.setdefault(table.name, (f"{feature!r} of {shared.name}", table))
    for feature, table in features.items():
        other, first = described.setdefault(table.name, (f"{feature!r}", table))
        if differences := first.differences(table):
            yield (
                f"features: received {other} and {feature!r} of the table {table.name!r} with "
                f"{', and with '.join(differences)}; expected one description. Give them the same "
                "Table, or rename one of the tables"
            )
