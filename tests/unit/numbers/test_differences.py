"""Parameters that come down as coded differences: both sides hold the same, bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.unit.numbers.comparison import BATCH, LABELS, X, compiled
from tfps.compression import ByPath, Delta, Identity, PushPull, Quantize, TopK
from tfps.errors import ConfigError
from tfps.runtime.server import delta_encoder
from tfps.runtime.server.delta_encoder import DeltaEncoder
from tfps.runtime.worker.delta_decoder import DeltaDecoder
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(240)
EPOCHS = 3


@pytest.fixture
def strategies(
    cluster: Callable[..., InProcessCluster],
) -> Iterator[Callable[..., tfps.ParameterServerStrategy]]:
    made = []

    def make(compression: Any, *, workers: int = 1, **options: Any) -> Any:
        resolver = cluster(workers=workers, ps=2).cluster_resolver
        made.append(
            tfps.ParameterServerStrategy(
                resolver, placement="round_robin", compression=compression, **options
            )
        )
        return made[-1]

    yield make
    for strategy in made:
        strategy.close()


def fitted(strategy: tfps.ParameterServerStrategy, epochs: int = EPOCHS) -> tuple[Any, list[float]]:
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = compiled(keras.optimizers.Adam(0.02))
    losses = model.fit(X, LABELS, batch_size=BATCH, epochs=epochs, verbose=0).history["loss"]
    return model, losses


class Ledger:
    """Copies of the values that servers keep for workers, and workers hold, after every reply."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.servers: list[DeltaEncoder] = []
        self.held: dict[tuple[int, str], np.ndarray] = {}
        begin, decode_reply, made = (
            DeltaDecoder.begin,
            DeltaDecoder.decode_reply,
            DeltaEncoder.__init__,
        )

        def note(decoder: DeltaDecoder) -> None:
            for key, variable in decoder.held.items():
                (value,) = [variable.read_value()]
                tf.numpy_function(lambda v, key=key: self.held.__setitem__(key, v), [value], [])

        def begin_and_note(decoder: DeltaDecoder, *arguments: Any) -> None:
            begin(decoder, *arguments)
            note(decoder)

        def arrive_and_note(decoder: DeltaDecoder, *arguments: Any) -> Any:
            found = decode_reply(decoder, *arguments)
            note(decoder)
            return found

        def make(encoder: DeltaEncoder, *arguments: Any, **options: Any) -> None:
            made(encoder, *arguments, **options)
            self.servers.append(encoder)

        monkeypatch.setattr(DeltaDecoder, "begin", begin_and_note)
        monkeypatch.setattr(DeltaDecoder, "decode_reply", arrive_and_note)
        monkeypatch.setattr(DeltaEncoder, "__init__", make)

    def kept(self, worker: int = 0) -> dict[tuple[int, str], np.ndarray]:
        rows = {key: row for encoder in self.servers for key, row in encoder.rows.items()}
        return {key: row.numpy()[worker] for key, row in rows.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode",
    [tfps.Asynchronous(), tfps.BoundedStaleness(1), tfps.Synchronous(), tfps.LocalSteps(2)],
    ids=str,
)
@pytest.mark.parametrize("codec", [TopK(0.1), Quantize(2)], ids=repr)
def test_a_worker_holds_what_its_servers_keep(
    strategies: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, codec: Any, mode: Any
) -> None:
    ledger = Ledger(monkeypatch)
    strategy = strategies(PushPull(pull=Delta(codec)), consistency=mode)
    fitted(strategy)
    kept = ledger.kept()
    assert set(kept) == set(ledger.held)
    assert kept
    for key, value in kept.items():
        assert value.tobytes() == ledger.held[key].tobytes()
        assert np.any(value)


# Of gradients: tests/unit/one_process/test_compression.py.
@pytest.mark.repeats
def test_what_a_codec_leaves_out_comes_later(strategies: Callable[..., Any]) -> None:
    """A model learns, though of an update one number in ten comes down at once."""
    _, expected = fitted(strategies(None), 15)
    plain = strategies(None)
    fitted(plain, 1)
    coded = strategies(PushPull(pull=Delta(TopK(0.1))))
    fitted(coded, 1)
    _, losses = fitted(strategies(PushPull(pull=Delta(TopK(0.1)))), 15)
    assert losses[-1] < 0.5 * losses[0]
    assert losses[-1] < expected[-1] + 0.15 * expected[0]
    assert 1.5 * coded.stats().bytes_pulled < plain.stats().bytes_pulled


@pytest.mark.repeats
def test_a_rule_leaves_vectors_as_they_are(strategies: Callable[..., Any]) -> None:
    """All of them here, so no bit is another one."""
    pull = ByPath({".": Identity()}, otherwise=Delta(TopK()))
    model, _ = fitted(strategies(PushPull(pull=pull)))
    other, _ = fitted(strategies(None))
    for one, expected in zip(model.get_weights(), other.get_weights(), strict=True):
        assert one.tobytes() == expected.tobytes()


@pytest.mark.rare
def test_a_worker_that_was_let_out_gets_everything(
    strategies: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It joins anew, in the middle of an epoch of two workers."""
    ledger = Ledger(monkeypatch)
    strategy = strategies(PushPull(pull=Delta(TopK(0.1))), workers=2)
    incarnations = []

    class Loss(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            incarnations.append(strategy.runtime.members.latest_incarnation(0))
            if batch == 1:
                strategy.runtime.members.evict(0, incarnations[-1])

    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = compiled(keras.optimizers.Adam(0.02))
    long = np.repeat(X, 50, 0), np.repeat(LABELS, 50)
    model.fit(*long, batch_size=BATCH, epochs=1, verbose=0, callbacks=[Loss()])
    assert strategy.stats().updates_applied >= len(long[0]) // BATCH
    assert np.isfinite(model.get_weights()[0]).all()
    assert ledger.held


@pytest.mark.rare
def test_functions_get_parameters_as_they_are(strategies: Callable[..., Any]) -> None:
    strategy = strategies(PushPull(pull=Delta(TopK(0.1))))
    with strategy.scope():
        weight, optimizer = keras.Variable(np.ones([64], "float32")), keras.optimizers.SGD(0.5)
        optimizer.build([weight])

    @tf.function
    def step() -> tf.Tensor:
        optimizer.apply([tf.ones([64])], [weight])
        return tf.reduce_sum(weight)

    result = strategy.coordinator.schedule(step)
    strategy.coordinator.join()
    assert float(result.fetch()) == 32.0


@pytest.mark.rare
def test_more_than_a_servers_memory_is_refused(
    strategies: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_encoder, "read_free_memory_bytes", lambda device: 100)
    strategy = strategies(PushPull(pull=Delta(TopK(0.1))))
    with raises(ConfigError, "compression: ", received="on ps 0", remedy="Quantize(8)"):
        fitted(strategy)
