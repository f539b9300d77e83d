"""Steps too large for a transport's message are refused, with the tables and a remedy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tests.messages import raises
from tests.unit.numbers.comparison import LABELS, fit
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tests.unit.numbers.tables import EXACT, IDS, ROWS, WIDTH, tables_model
from tfps.testing import InProcessCluster
from tfps.transport.chunk import CHUNK_BYTES_VARIABLE

pytestmark = [pytest.mark.rare, pytest.mark.timeout(180)]

LONGEST_BYTES = 4 * WIDTH * ROWS // 2  # half of a table; a server has halves of two


def test_a_step_that_asks_for_more_than_a_message_brings(
    cluster: Callable[..., InProcessCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHUNK_BYTES_VARIABLE, str(LONGEST_BYTES))
    few, many = IDS % 20, np.arange(IDS.size).reshape(IDS.shape) % ROWS
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS["shuffle"]) as strategy:
        with strategy.scope():
            model = tables_model(EXACT["sgd"])
        fit(model, few, LABELS, epochs=1)
        before = strategy.stats().updates_applied
        with raises(
            tf.errors.InvalidArgumentError,
            "own/embeddings: received ids of",
            received=f"expected at most {LONGEST_BYTES}",
            remedy="transport direct",
        ):
            fit(model, many, LABELS, epochs=1, batch_size=64)
        assert strategy.stats().updates_applied == before
