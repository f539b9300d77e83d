"""Inputs that read from a `tf.data` service, which prepares batches in other processes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import keras
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting import Visits, numbered, visit_counter
from tests.messages import raises
from tfps.errors import UnsupportedError

Make = Callable[..., tfps.ParameterServerStrategy]

service = tf.data.experimental.service
EXAMPLES, BATCH = 60, 5
X, LABELS = numbered(EXAMPLES)
REFUSED = functools.partial(
    raises, UnsupportedError, "dataset function", received="tf.data service", remedy="function()"
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A service of two workers, whose batches come in no fixed order."""
    dispatcher = service.DispatchServer()
    config = service.WorkerConfig(
        dispatcher_address=dispatcher.target.partition("://")[2], heartbeat_interval_ms=50
    )
    workers = [service.WorkerServer(config) for _ in range(2)]
    yield dispatcher.target
    del workers, dispatcher


def _batches() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, LABELS)).batch(BATCH)


def _read(address: str, job_name: str | None = None) -> tf.data.Dataset:
    name = {} if job_name is None else {"job_name": job_name}
    return _batches().apply(service.distribute("distributed_epoch", address, **name))


def _visits(model: keras.Model) -> list[int]:
    (visits,) = (metric for metric in model.metrics[1].metrics if isinstance(metric, Visits))
    return visits.counts()


@pytest.mark.parametrize("job_name", [None, "shared"])
def test_a_function_that_reads_from_a_service_is_refused_in_shards(
    make_strategy: Make, address: str, job_name: str | None
) -> None:
    """Each worker would take part of a shared pass, or find another order in one of its own."""
    strategy = make_strategy()
    model = visit_counter(strategy, examples=EXAMPLES)

    def read() -> tf.data.Dataset:
        return _read(address, job_name)

    for use in (
        lambda: model.evaluate(read, verbose=0),
        lambda: model.evaluate(read, steps=2, verbose=0),
        lambda: model.fit(X, LABELS, validation_data=read, verbose=0),
        lambda: model.fit(X, LABELS, validation_data=read, validation_steps=2, verbose=0),
        lambda: model.fit(tfps.ShardedDataset(read, number=2), verbose=0),
    ):
        with REFUSED():
            use()
    assert strategy.stats().updates_applied == 0


@pytest.mark.repeats
def test_each_example_once(make_strategy: Make, address: str) -> None:
    """Take what the error advises, `predict`, and functions of `fit` that share a pass."""
    strategy = make_strategy()
    model = visit_counter(strategy, examples=EXAMPLES)
    model.evaluate(_read(address), verbose=0)
    assert _visits(model) == [1] * EXAMPLES
    assert model.predict(lambda: _read(address, "of predict"), verbose=0).shape == (EXAMPLES, 3)
    model.fit(lambda: _read(address, "of fit"), verbose=0)
    assert _visits(model) == [1] * EXAMPLES


@pytest.mark.repeats
def test_tables_before_a_service(make_strategy: Make, address: str) -> None:
    """TF#47531: for a function the chief, which has the table, registers the dataset."""
    strategy = make_strategy()
    model = visit_counter(strategy, examples=EXAMPLES)
    lookup = keras.layers.StringLookup()
    lookup.adapt(["a", "b"])
    data = _batches().map(lambda x, y: (x * tf.cast(lookup(["a"]), tf.float32), y))
    number = service.register_dataset(address, data)

    def read() -> tf.data.Dataset:
        return service.from_dataset_id(
            "distributed_epoch", address, number, data.element_spec, job_name="with a table"
        )

    for each in (data.apply(service.distribute("distributed_epoch", address)), read):
        model.fit(each, verbose=0)
        assert _visits(model) == [1] * EXAMPLES
