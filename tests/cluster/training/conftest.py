"""A model on two workers; shared, since every new model is traced anew."""

from __future__ import annotations

import keras
import pytest

import tfps
from tests.cluster.counting import visit_counter

EXAMPLES = 100


@pytest.fixture(scope="module")
def model(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    return visit_counter(strategy, examples=EXAMPLES)
