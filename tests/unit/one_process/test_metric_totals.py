"""The totals of metrics on the ticket server, as the chief sets them back and reads them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.unit.one_process.sent_requests import note_requests
from tfps.testing import InProcessCluster

EXAMPLES, BATCH = 8, 2


@pytest.mark.rare
def test_a_reset_that_arrives_late_takes_nothing_away(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow may send a request again that had arrived, and the server run it late."""
    sent = note_requests(monkeypatch)
    strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    data = np.ones([EXAMPLES, 1], "float32")
    model.fit(data, data, batch_size=BATCH, verbose=0)
    run: Any = strategy.run_state.last_run
    server = run.compiled.servers[0]
    reset = int(server.reports.latest_reset.numpy())
    _, counted, _ = server.read_report()
    assert counted.any()
    [late] = [each for each in sent if each.values and each.values[0] == reset]
    late.send_again()
    assert np.array_equal(server.read_report()[1], counted)
    server.read_report(reset_to=server.program.totals.empty_total)
    assert not server.read_report()[1].any()
    strategy.close()
