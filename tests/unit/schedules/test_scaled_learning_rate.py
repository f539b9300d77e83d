"""Learning rates for another global batch."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from tfps.errors import ConfigError
from tfps.schedules import ScaledLearningRate


def rates(schedule: Any, steps: list[int]) -> list[float]:
    return [float(schedule(keras.ops.convert_to_tensor(step, "int64"))) for step in steps]


@pytest.mark.parametrize(("rule", "factor"), [("linear", 4.0), ("square_root", 2.0)])
def test_rules(rule: str, factor: float) -> None:
    schedule = ScaledLearningRate(0.1, base_batch_size=32, batch_size=128, rule=rule)
    assert schedule.factor == factor
    np.testing.assert_allclose(rates(schedule, [0, 7]), [0.1 * factor] * 2, rtol=1e-6)


def test_a_smaller_batch_takes_smaller_steps() -> None:
    schedule = ScaledLearningRate(0.1, base_batch_size=128, batch_size=32, warm_up_updates=2)
    np.testing.assert_allclose(rates(schedule, [0, 1, 2]), [0.1, 0.0625, 0.025], rtol=1e-6)


def test_another_schedule_is_scaled_as_it_falls() -> None:
    inner = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    schedule = ScaledLearningRate(inner, base_batch_size=1, batch_size=3, warm_up_updates=10)
    expected = [0.1, 2 * 0.1 * 0.5**0.5, 3 * 0.05, 3 * 0.025]
    np.testing.assert_allclose(rates(schedule, [0, 5, 10, 20]), expected, rtol=1e-6)


def test_it_is_saved_with_an_optimizer() -> None:
    inner = keras.optimizers.schedules.CosineDecay(0.1, 100)
    schedule = ScaledLearningRate(inner, base_batch_size=8, batch_size=24, rule="square_root")
    optimizer = keras.optimizers.SGD(schedule)
    loaded = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    again = loaded.get_config()["learning_rate"]["config"]
    assert (again["base_batch_size"], again["batch_size"]) == (8, 24)
    np.testing.assert_allclose(
        rates(loaded._learning_rate, [0, 50]), rates(schedule, [0, 50]), rtol=1e-6
    )


def test_all_mistakes_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        ScaledLearningRate(0.1, base_batch_size=0, batch_size=2.5, rule="cubic", warm_up_updates=-1)  # type: ignore[arg-type]
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "base_batch_size",
        "batch_size",
        "warm_up_updates",
        "rule",
    ]
