"""Each fault in a record gives its warning and no other; a clean record gives none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.observe.records import STEP_S, WORKERS, Line, record
from tfps.observe.cluster_warning import find_warnings

Fault = Callable[[int, Line], None]


def _slow_input(second: int, line: Line) -> None:
    line["stats"]["wait_seconds"] = {"mean": 0.06, "count": WORKERS * 5 * second}


def _busy_server(second: int, line: Line) -> None:
    line["stats"]["servers"][1]["update_seconds"] = {"mean": 0.06, "count": 15 * second}


def _thin_link(second: int, line: Line) -> None:
    line["stats"]["push_seconds"]["mean"] = 0.15
    for server in line["stats"]["servers"]:
        server["bytes_pulled"] = server["bytes_pushed"] = 1_000_000 * 15 * second


def _hot_server(second: int, line: Line) -> None:
    line["stats"]["push_seconds"]["mean"] = 0.12
    line["stats"]["servers"][1]["bytes_pulled"] *= 9


def _slow_worker(second: int, line: Line) -> None:
    line["stats"]["worker_step_seconds"][2] = 5 * STEP_S


def _idle_worker(second: int, line: Line) -> None:
    line["stats"]["worker_steps"][1] = min(line["stats"]["worker_steps"][1], 20)
    line["run"]["computing"] = [0, 2]


def _lost_worker(second: int, line: Line) -> None:
    _idle_worker(second, line)
    line["stats"]["tasks"]["worker 1"] = "lost"


def _stalled_round(second: int, line: Line) -> None:
    stopped_s = 70
    if second > stopped_s:
        line["stats"]["worker_steps"] = [5 * stopped_s] * WORKERS
        line["run"] |= {"waiting": [0, 2], "computing": [1]}


def _stalled_server(second: int, line: Line) -> None:
    _stalled_round(second, line)
    if second > 70:
        line["run"] |= {"waiting": [0, 1, 2], "computing": []}


def _nan(second: int, line: Line) -> None:
    if second > 80:
        line |= {"loss": "nan", "not_finite": "dense/kernel", "learning_rate": 0.5}


def _divergence(second: int, line: Line) -> None:
    if second > 80:
        line |= {"loss": 10.0 + second, "not_finite": None, "learning_rate": 0.5}


def _retracing(second: int, line: Line) -> None:
    line["traces"]["step"] = 6


def _memory(second: int, line: Line) -> None:
    line["usage"]["worker 1"]["memory_bytes"] = 95 * 10**8


def _grpc(second: int, line: Line) -> None:
    line["stats"]["transports"][1] = "grpc"


FAULTS: dict[str, tuple[Fault, str, str, list[str]]] = {
    "slow input": (_slow_input, "input-bound", "", ["60 ms for a batch, 30% of", "prefetch"]),
    "busy server": (_busy_server, "server-bound", "ps 1", ["ps 1 spends 90%", "add parameter"]),
    "thin link": (_thin_link, "link-bound", "", ["75% of a step", "4.0 MB in", "compression"]),
    "hot server": (_hot_server, "hot-server", "ps 1", ["1.7 times", "'table/shard_1'", "rule"]),
    "slow worker": (_slow_worker, "straggler", "worker 2", ["500 ms per step, 5.0x", "CPU"]),
    "idle worker": (_idle_worker, "idle", "worker 1", ["for 30 s", "it has no data left"]),
    "lost worker": (_lost_worker, "idle", "worker 1", ["it is lost", "events.jsonl"]),
    "stalled round": (
        _stalled_round,
        "stall",
        "worker 1",
        ["worker 0, worker 2 wait for worker 1"],
    ),
    "stalled server": (
        _stalled_server,
        "stall",
        "",
        ["worker 0, worker 1, worker 2 wait for a server"],
    ),
    "NaN": (
        _nan,
        "loss",
        "",
        ["is nan", "dense/kernel is not finite", "staleness 2.0", "rate 0.5", "lower"],
    ),
    "divergence": (_divergence, "loss", "", ["has grown from 0.", "to 99", "rate 0.5"]),
    "retracing": (_retracing, "retracing", "", ["step was traced 6 times", "one shape"]),
    "memory": (_memory, "memory", "worker 1", ["95% of the 10.0 GB", "smaller batches"]),
    "fallback to grpc": (_grpc, "grpc", "ps 1", ["over grpc", "tfps run"]),
}


@pytest.mark.parametrize(
    ("fault", "kind", "task", "words"), list(FAULTS.values()), ids=list(FAULTS)
)
def test_a_fault_gives_its_warning_alone(
    fault: Fault, kind: str, task: str, words: list[str]
) -> None:
    (found,) = find_warnings(record(fault=fault))
    assert (found.kind, found.task) == (kind, task)
    assert all(word in found.sentence for word in words), found.sentence


@given(st.integers(0, 70))
@settings(max_examples=20, deadline=None)
def test_a_job_that_trains_well_gives_none(seconds: int) -> None:
    lines = record(seconds)
    assert find_warnings(lines) == []


def _idle_chief(second: int, line: Line) -> None:
    """Between two calls of `fit`."""
    _stalled_round(second, line)
    if second > 70:
        line["run"] = None


def _first_step(second: int, line: Line) -> None:
    """A graph that workers take a minute to prepare."""
    line["stats"]["worker_steps"] = [0] * WORKERS
    line["run"]["steps"] = 0


def _long_steps(second: int, line: Line) -> None:
    """Steps of half a minute."""
    line["stats"]["worker_steps"] = [second // 30] * WORKERS
    line["stats"]["worker_step_seconds"] = [30.0] * WORKERS
    for durations in (line["stats"]["wait_seconds"], line["stats"]["push_seconds"]):
        durations |= {"mean": 0.01, "count": 1 + second // 30}


def _waits_for_the_slowest(second: int, line: Line) -> None:
    """Pushes that take long because of the other workers, not of the link."""
    _thin_link(second, line)
    line["mode"] = "Synchronous(backup_workers=0, warm_up_steps=0)"
    line["stats"]["worker_step_seconds"] = [0.05, 0.05, 0.09]


def _returning_server(second: int, line: Line) -> None:
    """A server that is lost has no statistics."""
    if second > 60:
        line["stats"] = {"tasks": {"ps 0": "lost"}}


@pytest.mark.parametrize(
    "state",
    [_idle_chief, _first_step, _long_steps, _waits_for_the_slowest, _returning_server],
    ids=lambda state: state.__name__.strip("_"),
)
def test_what_only_looks_like_a_fault_gives_none(state: Fault) -> None:
    assert find_warnings(record(fault=state)) == []


@pytest.mark.parametrize("fault", [_slow_worker, _idle_worker])
def test_a_moment_is_no_fault(fault: Fault) -> None:
    def begins_late(second: int, line: Line) -> None:
        if second > 85:
            fault(second, line)

    assert find_warnings(record(fault=begins_late)) == []


def test_an_earlier_strategy_of_the_file_does_not_count() -> None:
    lines = [line | {"began_s": 1.0} for line in record(fault=_slow_worker)]
    assert find_warnings([*lines, *record(3, fault=_slow_worker)]) == []


def test_an_empty_record_gives_none() -> None:
    assert find_warnings([]) == []
