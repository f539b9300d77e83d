"""Rows of tables travel once for all devices of a worker, with the numbers of one machine."""

from __future__ import annotations

import numpy as np
import pytest

import tfps
from tests.unit.numbers.collections_model import FEATURES as FORMS
from tests.unit.numbers.collections_model import dataset, recommender
from tests.unit.numbers.comparison import BATCH, LABELS, Comparison, fit
from tests.unit.numbers.large_tables import OPTIMIZERS, TABLE_BYTES, small_tables
from tests.unit.numbers.many_tables import FEATURES, JOIN, LOOK_UP, PUSH, exchanges_of, many_tables
from tests.unit.numbers.tables import (
    EXACT,
    IDS,
    LAZY,
    assert_only_rows_that_came_are_updated,
    tables_model,
)

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]

EXAMPLES = 53  # the last batch, of 5 examples, makes parts of 3 and 2


@pytest.mark.parametrize("optimizer", EXACT)
def test_numbers_of_one_machine(optimizer: str, strategy: tfps.ParameterServerStrategy) -> None:
    Comparison(strategy).run(
        lambda: tables_model(EXACT[optimizer]),
        lambda model: fit(model, IDS[:EXAMPLES], LABELS[:EXAMPLES]),
    )
    assert strategy.stats().fallback_steps == 0


def test_only_rows_that_came_are_updated(strategy: tfps.ParameterServerStrategy) -> None:
    assert_only_rows_that_came_are_updated(strategy, LAZY["momentum"])


@pytest.mark.parametrize("optimizer", EXACT)
@pytest.mark.parametrize("names", [tuple(FORMS), ("user", "basket")], ids=["all", "dense"])
def test_a_collection(
    names: tuple[str, ...], optimizer: str, strategy: tfps.ParameterServerStrategy
) -> None:
    """Ragged, sparse and dense ids are divided with the batch."""
    features = {name: FORMS[name] for name in names}
    Comparison(strategy).run(
        lambda: recommender(EXACT[optimizer], features),
        lambda model: model.fit(dataset(names), epochs=2, shuffle=False, verbose=0).history,
    )
    assert strategy.stats().fallback_steps == 0


@pytest.mark.parametrize("optimizer", ["clipped together", "scaled loss"])
def test_plain_optimizers(optimizer: str, strategy: tfps.ParameterServerStrategy) -> None:
    before = strategy.stats()
    Comparison(strategy).run(
        lambda: small_tables(OPTIMIZERS[optimizer]), lambda m: fit(m, IDS, LABELS)
    )
    after = strategy.stats()
    assert after.bytes_pulled - before.bytes_pulled < TABLE_BYTES
    assert after.bytes_pushed - before.bytes_pushed < TABLE_BYTES


def test_the_parts_of_a_batch_are_one_request(strategy: tfps.ParameterServerStrategy) -> None:
    """Also of one with fewer examples than devices."""
    with strategy.scope():
        model = many_tables(EXACT["sgd"], tables=3)

    def run() -> None:
        fit(model, FEATURES[: 2 * BATCH + 1], LABELS[: 2 * BATCH + 1], epochs=1)

    # A server that has no rows is not asked for any.
    assert max(exchanges_of(strategy, run)) == JOIN + 3 * (LOOK_UP + PUSH)
    assert np.isfinite(np.concatenate([w.ravel() for w in model.get_weights()])).all()
