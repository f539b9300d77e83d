"""Real models whose variables are placed: made by Keras, without values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfps.placement.forecast import PlannedVariable

BATCH_SIZE = 64
TOKENS = 128
# The numbers of categories in the 26 columns of the Criteo display advertising challenge.
CRITEO_CATEGORIES = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992,
    5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip


@dataclass(frozen=True)
class ModelShape:
    """A model to place."""

    title: str
    build: Callable[[], Any]  # imports Keras
    rows_per_step: int = BATCH_SIZE  # of every table that a step asks for

    def wanted(self) -> list[PlannedVariable]:
        """Its variables and Adam's slots; imports TensorFlow."""
        import keras

        from tfps.strategy.dry_run_strategy import DryRunStrategy

        keras.utils.clear_session()
        dry_run = DryRunStrategy()
        with dry_run.scope():
            model = self.build()
            model.compile(keras.optimizers.Adam())
        return [
            replace(variable, rows_per_step=self.rows_per_step)
            if variable.is_trained and variable.path.endswith("/embeddings")
            else variable
            for variable in dry_run.planned_variables(model)
        ]


def _transformer(*, blocks: int = 12, width: int = 768, heads: int = 12) -> Any:
    import keras

    layers = keras.layers
    tokens = keras.Input((TOKENS,), dtype="int32")
    x = layers.Embedding(50_257, width)(tokens)
    for _ in range(blocks):
        normal = layers.LayerNormalization()(x)
        attended = layers.MultiHeadAttention(heads, width // heads)(normal, normal)
        x = layers.Add()([x, attended])
        hidden = layers.Dense(4 * width, "gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(width)(hidden)])
    return keras.Model(tokens, layers.Dense(50_257)(layers.LayerNormalization()(x)))


def _resnet() -> Any:
    import keras

    return keras.applications.ResNet50(weights=None)


def _wide_and_deep(*, width: int = 16, units: Sequence[int] = (1024, 512, 256)) -> Any:
    import keras

    layers = keras.layers
    ids = [keras.Input((1,), dtype="int32") for _ in CRITEO_CATEGORIES]
    numbers = keras.Input((13,))
    pairs = list(zip(ids, CRITEO_CATEGORIES, strict=True))
    wide = [layers.Flatten()(layers.Embedding(size, 1)(column)) for column, size in pairs]
    deep = [layers.Flatten()(layers.Embedding(size, width)(column)) for column, size in pairs]
    x = layers.Concatenate()([*deep, numbers])
    for size in units:
        x = layers.Dense(size, "relu")(x)
    return keras.Model([*ids, numbers], layers.Add()([layers.Dense(1)(x), *wide]))


def _giant_table() -> Any:
    import keras

    layers = keras.layers
    ids = keras.Input((20,), dtype="int32")
    x = layers.Flatten()(layers.Embedding(100_000_000, 64)(ids))
    return keras.Model(ids, layers.Dense(1)(layers.Dense(256, "relu")(x)))


MODELS = {
    "transformer": ModelShape("transformer", _transformer, BATCH_SIZE * TOKENS),
    "resnet": ModelShape("ResNet-50", _resnet),
    "wide_and_deep": ModelShape("wide & deep, 26 tables", _wide_and_deep),
    "giant_table": ModelShape("one giant table", _giant_table, BATCH_SIZE * 20),
}
