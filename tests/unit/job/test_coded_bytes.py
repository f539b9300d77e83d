"""The bytes that `tfps plan --compare` expects of codecs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfps.compression import ByPath, Cast, Codec, Delta, Identity, PushPull, Quantize, TopK
from tfps.job.coded_bytes import bytes_left_out, kept_bytes_per_server
from tfps.job.plan import plan_job
from tfps.placement import LeastLoaded
from tfps.placement.advice import sizes_of_strategies
from tfps.placement.forecast import Forecast, PlannedVariable

CODECS = st.sampled_from([Identity(), Cast(), Quantize(8), TopK(0.01)])


def _forecast(*wanted: PlannedVariable) -> Forecast:
    return Forecast.from_variables(list(wanted), servers=1, placement=LeastLoaded())


def _dense(*shape: int, path: str = "dense/kernel") -> PlannedVariable:
    return PlannedVariable(path, shape, "float32", is_pulled=True, is_trained=True)


@given(shape=st.lists(st.integers(1, 200), min_size=1, max_size=3), push=CODECS, pull=CODECS)
def test_less_is_left_out_than_there_is(shape: list[int], push: Codec, pull: Codec) -> None:
    variable = _dense(*shape)
    left_out = bytes_left_out(_forecast(variable), PushPull(push=push, pull=pull))
    assert 0 <= left_out < variable.step_bytes
    assert left_out == 0 or (push, pull) != (Identity(), Identity())


def test_rules_and_what_goes_as_it_is() -> None:
    table = PlannedVariable("embedding", (1000, 16), "float32", is_pulled=True, is_trained=True)
    rows = PlannedVariable(
        "rows", (1000, 16), "float32", is_trained=True, is_pulled=True, rows_per_step=9
    )
    frozen = PlannedVariable("frozen", (1000, 16), "float32", is_pulled=True, is_frozen=True)
    codecs = PushPull(push=ByPath({"embedding": Identity()}, otherwise=Cast()))
    assert bytes_left_out(_forecast(table, rows, frozen), codecs) == 0
    assert bytes_left_out(_forecast(table, _dense(8, 8)), codecs) == 2 * 64


def test_servers_keep_what_each_worker_holds() -> None:
    rows = PlannedVariable(
        "rows", (1000, 16), "float32", is_trained=True, is_pulled=True, rows_per_step=9
    )
    forecast = _forecast(_dense(8, 8), _dense(8, path="bias"), rows)
    deltas = PushPull(pull=ByPath({"bias": Cast()}, otherwise=Delta(Quantize(8))))
    assert kept_bytes_per_server(forecast, deltas, workers=3) == (3 * 4 * 64,)
    for other in (PushPull(), PushPull(push=TopK(), pull=Quantize(8))):
        assert kept_bytes_per_server(forecast, other, workers=3) == (0,)


def test_a_plan_counts_it() -> None:
    options = ["compression.pull=top_k", "compression.deltas=true"]
    (plain, *_), (more, *_) = (
        plan_job(None, overrides).memory_bytes_per_server for overrides in ([], options)
    )
    plan = plan_job(None, options)
    trained = [v for v in plan.forecast.variables if v.is_trained]
    homes = zip(plan.forecast.variables, plan.forecast.server_of_variable, strict=True)
    here = sum(v.size_bytes for v, server in homes if server == 0 and v in trained)
    assert more - plain == plan.workers * here
    assert "remove compression.deltas" in plan.memory_problems(ps_memory_gib=0.01)[0]


@pytest.mark.parametrize(
    ("options", "copies"),
    [
        (["training.optimizer.name=asyncadam"], 3),
        (["training.optimizer.name=asyncadam", "training.optimizer.momentum=ordered"], 0),
        (["training.optimizer.name=dana"], 3),
    ],
    ids=["per_worker", "ordered", "dana"],
)
def test_a_plan_counts_what_optimizers_keep_of_workers(options: list[str], copies: int) -> None:
    plan = plan_job(None, ["cluster.workers=4", *options])
    trained = [v for v in plan.forecast.variables if v.is_trained]
    assert {v.worker_copies for v in trained} == {copies}
    assert not any(v.worker_copies for v in plan.forecast.variables if not v.is_trained)
    without = [replace(v, worker_copies=0) for v in plan.forecast.variables]
    plain = replace(plan, forecast=replace(plan.forecast, variables=tuple(without)))
    more = sum(plan.memory_bytes_per_server) - sum(plain.memory_bytes_per_server)
    assert more == copies * sum(v.size_bytes for v in trained)
    named = "copies of the weights for each worker" in plan.memory_problems(ps_memory_gib=0.01)[0]
    assert named == (copies > 0)


def test_strategies_of_tfps_move_what_codecs_leave() -> None:
    plans = [plan_job(None, overrides) for overrides in ([], ["compression.codec=quantize"])]
    plain, coded = (
        {each.strategy.title: each.step_bytes for each in sizes_of_strategies(plan.sizes)}
        for plan in plans
    )
    is_less = {title for title in plain if coded[title] < plain[title]}
    assert is_less == {"tfps asynchronous, bounded", "tfps synchronous, backup"}
    assert coded["tfps asynchronous, bounded"] < 0.7 * plain["tfps asynchronous, bounded"]
