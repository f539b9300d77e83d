"""A dry run: a model's variables in the order of a strategy, without their memory."""

from __future__ import annotations

import keras

from tests.messages import raises
from tfps.errors import ConfigError
from tfps.strategy.dry_run_strategy import DryRunStrategy


def test_a_table_larger_than_any_machine() -> None:
    keras.utils.clear_session()  # names begin anew
    dry_run = DryRunStrategy()
    with dry_run.scope():
        model = keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Embedding(10**10, 64, name="table"),
                keras.layers.Flatten(),
                keras.layers.Dropout(0.5),
                keras.layers.BatchNormalization(name="norm"),
                keras.layers.Dense(3, name="dense"),
            ],
            name="model",
        )
        model.compile("adam", "mse", metrics=["accuracy"])
    wanted = dry_run.planned_variables(model)
    named = {each.path: each for each in wanted}
    table = named["model/table/embeddings"]
    assert (table.shape, table.size_bytes) == ((10**10, 64), 256 * 10**10)
    assert (table.is_pulled, table.is_trained) == (True, True)
    mean = named["model/norm/moving_mean"]
    assert (mean.is_pulled, mean.is_trained) == (True, False)
    momentum = named["adam/model_table_embeddings_momentum"]
    assert momentum.owner is not None
    assert wanted[momentum.owner] is table
    assert not momentum.is_pulled
    # The states of seeds and counts of steps lie on servers too; those of metrics do not.
    alone = [each.path for each in wanted if each.owner is None and not each.is_pulled]
    assert alone == ["seed_generator/seed_generator_state", "adam/iteration", "adam/learning_rate"]


def test_a_model_without_variables_yet() -> None:
    dry_run = DryRunStrategy()
    with dry_run.scope():
        model = keras.Sequential([keras.layers.Dense(3)], name="empty")
        model.compile("sgd", "mse")
    with raises(ConfigError, "empty: ", received="without variables", remedy="model.build(shape)"):
        dry_run.planned_variables(model)


def test_what_a_frozen_layer_has_is_no_other_state() -> None:
    """It is divided, as a strategy does, which makes it before the layer is frozen."""
    dry_run = DryRunStrategy()
    with dry_run.scope():
        table = keras.layers.Embedding(100, 4, trainable=False, name="table")
        norm = keras.layers.BatchNormalization(name="norm")
        layers = [keras.Input((4,)), table, norm, keras.layers.Dense(3)]
        model = keras.Sequential(layers, name="model")
        model.compile("sgd", "mse")
    frozen = {
        each.path: each.is_frozen
        for each in dry_run.planned_variables(model)
        if not each.is_trained
    }
    assert frozen.pop("model/table/embeddings")
    assert "model/norm/moving_mean" in frozen
    assert not any(frozen.values())
