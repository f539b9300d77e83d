"""Asynchronous eager execution, which a worker and the chief would wait for each other with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tensorflow as tf

from tests.unit.numbers.comparison import Comparison

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def asynchronous_execution() -> Iterator[None]:
    tf.config.experimental.set_synchronous_execution(False)
    yield
    tf.config.experimental.set_synchronous_execution(True)


def test_training_ends_asynchronous_execution_and_says_so_once(
    comparison: Comparison, asynchronous_execution: None, caplog: pytest.LogCaptureFixture
) -> None:
    comparison.run()
    assert tf.config.experimental.get_synchronous_execution()
    said = [each for each in caplog.messages if "set_synchronous_execution" in each]
    assert len(said) == 1
