"""Models without an Input that only their own step, or their batches, can build."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from tests.integration.reports.unbuilt_models import BATCH, CASES
from tests.unit.numbers.comparison import Comparison

pytestmark = pytest.mark.timeout(180)


@pytest.mark.quick("a dict")
@pytest.mark.parametrize("case", CASES)
def test_a_model_that_its_step_builds(case: str, comparison: Comparison) -> None:
    make, arrays = CASES[case]

    def made() -> keras.Model:
        model = make()
        model.compile("sgd", "mse")
        return model

    batches = tf.data.Dataset.from_tensor_slices(arrays).batch(BATCH)
    comparison.run(made, lambda model: model.fit(batches, verbose=0).history)
