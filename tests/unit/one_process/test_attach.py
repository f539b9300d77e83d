"""A reader attached to a job reads what its chief would, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.cluster.checkpoint.counting_model import count_of, counting_model, updates_of
from tests.messages import raises
from tfps.errors import ConfigError, StrategyClosed
from tfps.testing import InProcessCluster

STEPS = 6

Make = Callable[..., tfps.ParameterServerStrategy]


def _fit(model: keras.Model, **options: Any) -> None:
    model.fit(np.zeros([STEPS, 1]), np.zeros([STEPS, 1]), batch_size=1, verbose=0, **options)


@pytest.fixture
def job(make_strategy: Make) -> tuple[tfps.ParameterServerStrategy, keras.Model]:
    """A job with a table whose rows alternate between two servers, and variables in slabs."""
    strategy = make_strategy(
        job="night",
        placement="round_robin",
        variable_partitioner=tfps.partitioners.ByPath({"counts_1": tfps.partitioners.RowModulo(2)}),
    )
    with strategy.scope():
        return strategy, counting_model()


@pytest.mark.slow
def test_values_are_those_of_the_chief(
    cluster: InProcessCluster, job: tuple[tfps.ParameterServerStrategy, keras.Model]
) -> None:
    """Weights, slots and shards, by the names that the chief pulls them by; and its counts."""
    strategy, model = job
    with tfps.attach("night", cluster.cluster_resolver) as reader:
        assert reader.names == []  # the chief has told the servers of none
        _fit(model)
        theirs, versions = strategy.pull()
        values, read = reader.pull()
        assert set(values) == set(theirs)
        for name, value in theirs.items():
            np.testing.assert_array_equal(values[name], value, err_msg=name)
        np.testing.assert_array_equal(read, versions)
        (divided,) = [name for name in reader.names if name.endswith("/counts_1")]
        assert values[divided].shape == (500, 80)
        assert list(reader.pull([divided])[0]) == [divided]
        counted = vars(strategy.stats())
        assert vars(reader.stats()).items() <= counted.items()
        assert reader.stats().worker_steps == strategy.stats().worker_steps


@pytest.mark.repeats
def test_training_goes_on_meanwhile(
    cluster: InProcessCluster, job: tuple[tfps.ParameterServerStrategy, keras.Model]
) -> None:
    """Each read is of one version of each server, and each update counts once all the same."""
    strategy, model = job
    seen = []
    with tfps.attach("night", cluster.cluster_resolver) as reader:

        class Read(keras.callbacks.Callback):
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                values, versions = reader.pull()
                for server, version in enumerate(versions):
                    there = [v.variable for v in strategy.plan.views if v.server == server]
                    whole = [v for n, v in values.items() if n in there and "rate" not in n]
                    assert count_of(whole) == version
                seen.append(int(min(versions)))

        _fit(model, epochs=4, callbacks=[Read()])
    assert len(seen) == 4 * STEPS
    assert seen == sorted(seen)
    assert updates_of(model) == strategy.stats().updates_applied == 4 * STEPS


@pytest.mark.rare
def test_a_job_that_gets_another_layout_or_ends(
    cluster: InProcessCluster, job: tuple[tfps.ParameterServerStrategy, keras.Model]
) -> None:
    strategy, model = job
    _fit(model)
    reader = tfps.attach("night", cluster.cluster_resolver)
    (name,) = [name for name in reader.names if name.endswith("/counts_0")]
    reader.pull([name])
    with strategy.scope():
        model.compile(keras.optimizers.Adam(), "mse")  # other slots, in other slabs
    _fit(model)
    np.testing.assert_array_equal(reader.pull([name])[0][name], model.get_weights()[0])
    with raises(ConfigError, "names", received="'none'", remedy="'adam"):
        reader.pull(["none"])
    with raises(ConfigError, "names", received="'none'", remedy="a list"):
        reader.pull("none")
    strategy.close()
    with raises(StrategyClosed, "'night'"):
        reader.pull()
    reader.close()
    reader.close()
    with raises(StrategyClosed, "closed"):
        reader.stats()


def test_mistakes(cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with raises(ConfigError, "job", received="'day'", remedy="job='day'"):
        tfps.attach("day", cluster.cluster_resolver)
    with pytest.raises(ConfigError) as raised:
        tfps.attach("a b", ["host"], secret="", timeout_s=0)
    received = [problem.split(":")[0] for problem in raised.value.problems]
    assert received == ["job", "timeout_s", "secret", "addresses"]
    monkeypatch.delenv("TF_CONFIG", raising=False)
    wrong: list[Any] = [[], "a:1", None, 3]
    for addresses in wrong:
        with raises(ConfigError, "addresses: "):
            tfps.attach("day", addresses)


@pytest.mark.rare
def test_a_server_that_was_started_anew_has_its_record(
    cluster: InProcessCluster, job: tuple[tfps.ParameterServerStrategy, keras.Model]
) -> None:
    """Without it, neither a reader nor the next chief would find the job."""
    strategy, model = job
    _fit(model)
    with tfps.attach("night", cluster.cluster_resolver) as reader:
        names = reader.names
        (record,) = [r for r in strategy.runtime.contents[1].records if r.shared_name == "record"]
        record.destroy()
        with pytest.raises(StrategyClosed):
            reader.pull()
        server = strategy.runtime.servers[1]
        ledger = server.ledger.read_values()
        server.contents.recreate()
        server.ledger.assign_values(*ledger)
        assert reader.names == names
