"""The traffic that tfps reports is that of the system's own counters of TCP."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import keras
import numpy as np
import pytest

import tfps
from benchmarks.socket_bytes import tcp_bytes_of
from tfps.launch import LocalCluster

FEATURES, UNITS, ROWS, BATCH, EPOCHS = 512, 512, 64, 2, 4
WEIGHT_BYTES = 4 * (FEATURES + 1) * UNITS

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def over_tcp(
    tfps_cluster_factory: Callable[..., LocalCluster],
) -> Iterator[tuple[LocalCluster, tfps.ParameterServerStrategy]]:
    """Direct connections over TCP, as between machines: bytes of unix sockets are not counted."""
    environment = {"TFPS_LOGICAL_CPUS": "1", "TFPS_UNIX_SOCKETS": "off"}
    tasks = tfps_cluster_factory(workers=2, ps=2, environment=environment)
    strategy = tfps.ParameterServerStrategy(
        tasks.cluster_resolver, tfps.partitioners.FixedShardsPartitioner(2), transport="direct"
    )
    yield tasks, strategy
    strategy.close()


@pytest.mark.repeats
def test_traffic_is_what_sockets_count(
    over_tcp: tuple[LocalCluster, tfps.ParameterServerStrategy],
) -> None:
    tasks, strategy = over_tcp
    servers = [tasks.pid("ps", number) for number in range(2)]
    if tcp_bytes_of(servers[0]) is None:
        pytest.skip("the system does not let this process read what sockets count")

    def moved() -> list[int]:
        return [tcp_bytes_of(server) or 0 for server in servers]

    with strategy.scope():
        model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(UNITS)])
        model.compile("sgd", "mse")
    x, y = np.ones([ROWS, FEATURES], "float32"), np.ones([ROWS, UNITS], "float32")
    model.fit(x, y, batch_size=BATCH, verbose=0)  # connections open, functions are traced
    before, said_before = moved(), strategy.stats().traffic
    model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0)
    after, said = moved(), strategy.stats().traffic

    steps = EPOCHS * ROWS // BATCH
    assert [(each.server, each.direction) for each in said] == [
        (0, "up"), (0, "down"), (1, "up"), (1, "down"),
    ]  # fmt: skip
    for server in range(2):
        grew = [
            now.sent_bytes - then.sent_bytes
            for now, then in zip(said, said_before, strict=True)
            if now.server == server
        ]
        assert all(each >= steps * WEIGHT_BYTES / 2 for each in grew)
        assert sum(grew) == pytest.approx(after[server] - before[server], rel=0.02)
    assert {each.counted_at for each in said} == {"socket"}
