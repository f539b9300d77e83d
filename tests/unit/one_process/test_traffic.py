"""The bytes that servers count in a job, message by message."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tfps.runtime.message.wire import CallWire
from tfps.runtime.server.fit_half import FitHalf
from tfps.testing import InProcessCluster
from tfps.transport.message import REPLY_FIELDS, REQUEST_FIELDS
from tfps.transport.traffic import CodedPart

pytestmark = pytest.mark.rare

ROWS, BATCH, LINE_BYTES = 8, 2, 64
HEADERS = 8 * REQUEST_FIELDS, 8 * REPLY_FIELDS


def _trained(cluster: InProcessCluster, mode: Any) -> tuple[Any, Any]:
    strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, consistency=mode)
    with strategy.scope():
        model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(1, use_bias=False)])
        model.compile("sgd", "mse")
    data = np.ones([ROWS, 16], "float32"), np.ones([ROWS, 1], "float32")
    model.fit(*data, batch_size=BATCH, verbose=0)
    before = strategy.stats().traffic
    model.fit(*data, batch_size=BATCH, verbose=0)
    after = strategy.stats().traffic
    strategy.close()
    return before, after


def _grew(before: Any, after: Any, *, server: int = 0) -> dict[str, int]:
    pairs = zip(before, after, strict=True)
    return {b.direction: a.sent_bytes - b.sent_bytes for b, a in pairs if b.server == server}


def test_every_message_of_an_epoch_counts(cluster: InProcessCluster) -> None:
    """One weight of a line: two joins, four pushes with a report, two leaves with one."""
    before, after = _trained(cluster, tfps.Asynchronous())
    steps, workers = ROWS // BATCH, 2
    messages = steps + 2 * workers
    grew = _grew(before, after)
    pushed = steps * 2 * LINE_BYTES + workers * LINE_BYTES
    assert grew["up"] == messages * HEADERS[0] + pushed
    assert grew["down"] == messages * HEADERS[1] + (workers + steps) * LINE_BYTES
    # The other server has no variable, and takes no report.
    assert _grew(before, after, server=1)["up"] == messages * HEADERS[0]
    assert {each.counted_at for each in after} == {"message"}
    assert {len(each.codecs) for each in after} == {1}


def test_what_a_codec_says_of_a_call_counts_with_each_push(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_wire = FitHalf.build_wire

    def coded_wire(half: FitHalf, number: int) -> CallWire:
        up, down = CodedPart("Cast", "all", 64, 128), CodedPart("Quantize", "dense", 64, 256)
        return dataclasses.replace(
            plain_wire(half, number), encoded_request_parts=(up,), encoded_reply_parts=(down,)
        )

    monkeypatch.setattr(FitHalf, "build_wire", coded_wire)
    before, after = _trained(cluster, tfps.Synchronous())
    for old, new, per_push in zip(before[:2], after[:2], (64, 192), strict=True):
        saved = [each.plain_bytes - each.sent_bytes for each in (old, new)]
        assert saved[1] - saved[0] == ROWS // BATCH * per_push
        assert new.codecs[0].sent_bytes - old.codecs[0].sent_bytes == ROWS // BATCH * 64
