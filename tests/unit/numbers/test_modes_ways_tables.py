"""Every mode, way of training and table: the numbers of one process, or a refusal."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable

import pytest

from tests.unit.numbers import large_tables
from tests.unit.numbers.combinations import (
    MODES,
    TABLES,
    Case,
    Learns,
    Outcome,
    RefusedCase,
    SameNumbers,
    assert_outcome,
)
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tests.unit.numbers.tables import EXACT, LAZY
from tfps.runtime.program import tables
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(240)

SAME, LEARNS = SameNumbers(), Learns()
OF_TWO_BATCHES = SameNumbers(batches=2)
BY_WORKERS = SameNumbers(keeps_slots=True)  # which update by themselves
WHOLE = SameNumbers(whole=True, tolerance=2e-5)
WHOLE_BY_WORKERS = SameNumbers(whole=True, keeps_slots=True, tolerance=2e-5)
NO_WARM_UP = RefusedCase(
    "warm_up_steps=2", "a scheduled function that calls an optimizer", "learning rate schedule"
)
NO_ROWS = RefusedCase("SparseUpdates", "row gradients", "strategy.push_rows(")

Outcomes = dict[str, Outcome]
OF_FIT: Outcomes = {
    "asynchronous": SAME,
    "warm-up": LEARNS,  # the optimizer begins anew after it
    "bounded": SAME,
    "synchronous": SAME,
    "local": BY_WORKERS,
    "local rounds": BY_WORKERS,
}
OF_FUNCTIONS: Outcomes = {**OF_FIT, "warm-up": NO_WARM_UP}
ROWS_OF_FIT: Outcomes = {
    **OF_FIT,
    "warm-up": RefusedCase("SparseUpdates", "warm_up_steps", "Choose one of those"),
    "local": RefusedCase("SparseUpdates", "tfps.LocalSteps, which", "Choose one of those"),
    "local rounds": RefusedCase(
        "SparseUpdates", "tfps.LocalSteps or warm_up_steps, which", "Choose one of those"
    ),
}
ROWS_OF_FUNCTIONS: Outcomes = {
    **OF_FUNCTIONS,
    "synchronous": NO_ROWS,
    "local": NO_ROWS,
    "local rounds": NO_ROWS,
}
LARGE_OF_FIT: Outcomes = {**OF_FIT, "local": WHOLE_BY_WORKERS, "local rounds": WHOLE_BY_WORKERS}
LARGE_OF_FUNCTIONS: Outcomes = {
    **OF_FUNCTIONS,
    "synchronous": WHOLE,
    "local": WHOLE_BY_WORKERS,
    "local rounds": WHOLE_BY_WORKERS,
}
MATRIX: dict[tuple[str, str], Outcomes] = {
    ("no table", "fit"): OF_FIT,
    ("no table", "functions"): OF_FUNCTIONS,
    ("no table", "loop"): OF_FUNCTIONS,
    ("no table", "assigning"): OF_FUNCTIONS,
    ("large table", "fit"): LARGE_OF_FIT,
    ("large table", "functions"): LARGE_OF_FUNCTIONS,
    ("large table", "two calls"): LARGE_OF_FUNCTIONS,
    ("SparseUpdates", "fit"): ROWS_OF_FIT,
    ("SparseUpdates", "functions"): ROWS_OF_FUNCTIONS,
    ("SparseUpdates", "two calls"): ROWS_OF_FUNCTIONS,
    ("collection", "fit"): ROWS_OF_FIT,
    ("collection", "functions"): ROWS_OF_FUNCTIONS,
}


def _cells() -> Iterable[Case]:
    """Each cell of the matrix, with the usual optimizer on two servers."""
    for (table, way), outcomes in MATRIX.items():
        for mode, outcome in outcomes.items():
            yield Case(mode, way, table, outcome)


def _others() -> Iterable[Case]:
    """Other optimizers, divisions and numbers of servers."""
    fit, use = "fit", "fit, evaluate, predict"
    for name in PARTITIONERS:
        yield Case("asynchronous", fit, "many layers", SAME, division=name)
    for name in TABLES["no table"].optimizers:
        yield Case("asynchronous", fit, "no table", SAME, name, division="rules")
    for name, division in itertools.product(
        large_tables.OPTIMIZERS, ("shuffle", "modulo", "fixed", None)
    ):
        yield Case("asynchronous", use, "large table", SAME, name, division=division)
    yield Case("asynchronous", fit, "large table", SAME, "ahead")
    yield Case("bounded", "functions", "large table", SAME, "ahead")
    yield Case("asynchronous", fit, "collection", SAME, "ahead beside tables")
    for way, mode, name, division in itertools.product(
        ("functions", "two calls"),
        ("asynchronous", "bounded", "synchronous", "local"),
        ("sgd", "adam", "clipped", "clipped together"),
        ("shuffle", None),
    ):
        outcome = LARGE_OF_FUNCTIONS[mode]
        yield Case(mode, way, "large table", outcome, name, division=division)
    for name, servers in itertools.product(EXACT, (1, 2, 3)):
        yield Case("asynchronous", fit, "SparseUpdates", SAME, name, servers=servers)
        for division in ("shuffle", None):
            yield Case("asynchronous", fit, "collection", SAME, name, division, servers)
    for name, division in itertools.product(LAZY, ("shuffle", "modulo", None)):
        yield Case("asynchronous", fit, "SparseUpdates", SAME, name, division=division)
    for name in EXACT:
        yield Case("synchronous", fit, "SparseUpdates", SAME, name)
    for name, division in itertools.product(
        ("momentum", "stale", "scaled", "around several"), ("shuffle", None)
    ):
        yield Case("synchronous", fit, "SparseUpdates", SAME, name, division=division)


def _of_two_workers() -> Iterable[Case]:
    """A round is one step of one process; in other modes there are no numbers to compare with."""
    for servers in (1, 2, 3):
        of_a_round = Case("synchronous", "fit", "collection", OF_TWO_BATCHES, "by table")
        yield dataclasses.replace(of_a_round, servers=servers, workers=2)
    divided = Case("asynchronous", "fit", "no table", LEARNS, workers=2)
    for mode in ("bounded", "local", "elastic", "local rounds", "warm-up"):
        yield dataclasses.replace(divided, mode=mode, division="modulo")
    yield dataclasses.replace(divided, optimizer="ahead")
    yield Case("asynchronous", "fit", "large table", LEARNS, "ahead", workers=2)


def _refusals() -> Iterable[Case]:
    """Refusals of single optimizers, of tables above a limit, and of other ways to train."""
    averages = RefusedCase("LocalSteps", "use_ema=True", "use_ema=False")
    for way in ("fit", "functions"):
        yield Case("local", way, "no table", averages, "averages")
    for way, name in itertools.product(
        ("gradients of another function", "on the coordinator", "strategy.push"),
        ("adam", "in stale", "scaled", "around scaled"),
    ):
        yield Case("asynchronous", way, "SparseUpdates", NO_ROWS, name)
    push = RefusedCase("Synchronous(backup_workers=0, ", "strategy.push()", "Keras optimizer")
    yield Case("synchronous", "strategy.push in a function", "no table", push)
    for mode in ("synchronous", "bounded"):
        push_rows = RefusedCase("consistency=", "strategy.push_rows()", "Keras optimizer")
        yield Case(mode, "push_rows in a function", "no table", push_rows, division=None)
    for mode in ("rounds", "bounded", "local"):
        yield Case(f"{mode} after a warm-up", "functions", "no table", NO_WARM_UP)
    for mode, cause in {
        "local": "tfps.LocalSteps",
        "local rounds": "tfps.LocalSteps",
        "warm-up": "tfps.LocalSteps or warm_up_steps",
    }.items():
        received = f"a table of 1.2 MiB with {cause}"
        whole = RefusedCase("shared/embeddings: ", received, "expected at most 1 MiB")
        too_large = Case(mode, "fit", "large table", whole, limit_bytes=1 << 20)
        yield dataclasses.replace(too_large, division=None)
    whole = RefusedCase("embeddings: ", "consistency=LocalSteps", "tfps.Asynchronous()")
    too_large = Case("local", "functions", "large table", whole, limit_bytes=1 << 20)
    yield dataclasses.replace(too_large, division=None)


CASES = {
    case.id: case
    for cases in (_cells(), _others(), _of_two_workers(), _refusals())
    for case in cases
}


@pytest.mark.quick(
    "asynchronous-fit-no table-clipped-rules",
    "local-fit-SparseUpdates-adam",
    "local-fit-large table-adam-whole-too large",
    "local-fit-no table-averages",
    "warm-up-functions-no table-adam",
)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_process_or_a_refusal(
    case: Case, cluster: Callable[..., InProcessCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    if case.table == "collection":  # whose small tables travel by rows as large ones do
        monkeypatch.setattr(tables, "LEAST_TABLE_BYTES", 1)
    if case.limit_bytes is not None:
        monkeypatch.setattr(tables, "WHOLE_BYTES", case.limit_bytes)
    running = cluster(workers=case.workers, ps=case.servers)
    partitioner = PARTITIONERS.get(case.division)  # type: ignore[arg-type]
    with strategy_with(running, partitioner, consistency=MODES[case.mode]) as strategy:
        assert_outcome(strategy, case)
