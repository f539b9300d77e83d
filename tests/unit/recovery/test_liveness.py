"""Verdicts follow from answered and missed probes alone."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.messages import raises
from tfps.errors import ConfigError
from tfps.recovery.probing.liveness import Liveness, ProbePolicy, Verdict

POLICIES = st.builds(
    ProbePolicy,
    period_s=st.floats(0.01, 10),
    deadline_s=st.floats(0.01, 10),
    misses=st.integers(1, 5),
)


def _after(policy: ProbePolicy, replies: list[bool], *, late_s: float = 0.0) -> Verdict:
    liveness = Liveness(["task", "another"], policy=policy)
    now_s = 0.0
    for replied in replies:
        if replied:
            liveness.record_reply("task", sent_s=now_s)
        else:
            judged_s = now_s + policy.deadline_s + late_s
            liveness.record_miss("task", sent_s=now_s, judged_s=judged_s)
        now_s += policy.period_s
    assert liveness.verdict("another") is Verdict.ALIVE
    return liveness.verdict("task")


@given(POLICIES, st.lists(st.booleans(), max_size=30))
def test_lost_after_so_many_misses_in_a_row(policy: ProbePolicy, replies: list[bool]) -> None:
    missed_last = 0
    for replied in replies:
        missed_last = 0 if replied else missed_last + 1
    verdict = _after(policy, replies)
    assert (verdict is Verdict.LOST) == (missed_last >= policy.misses)
    assert (verdict is Verdict.ALIVE) == (missed_last == 0)


@given(POLICIES, st.lists(st.booleans(), max_size=30))
def test_one_answer_and_it_is_alive_again(policy: ProbePolicy, replies: list[bool]) -> None:
    assert _after(policy, [*replies, True]) is Verdict.ALIVE


@given(POLICIES, st.lists(st.booleans(), max_size=30), st.floats(0.001, 1000))
def test_who_stood_still_itself_has_seen_no_miss(
    policy: ProbePolicy, replies: list[bool], extra_s: float
) -> None:
    late_s = policy.period_s + extra_s
    assert _after(policy, replies, late_s=late_s) is Verdict.ALIVE


@given(POLICIES, st.floats(0, 100), st.floats(0, 100))
def test_an_answer_from_before_a_doubt_proves_nothing(
    policy: ProbePolicy, sent_s: float, doubted_s: float
) -> None:
    liveness = Liveness(["task"], policy=policy)
    assert liveness.mark_suspect("task", now_s=doubted_s) is not Verdict.ALIVE
    replied = liveness.record_reply("task", sent_s=sent_s)
    assert (replied is Verdict.ALIVE) == (sent_s >= doubted_s)
    assert liveness.record_reply("task", sent_s=doubted_s) is Verdict.ALIVE


@given(POLICIES)
def test_a_task_that_stops_is_lost_in_time(policy: ProbePolicy) -> None:
    """Stopped right after an answer; each probe takes its deadline."""
    liveness, now_s = Liveness(["task"], policy=policy), policy.period_s
    lost_s = now_s
    while liveness.verdict("task") is not Verdict.LOST:
        sent_s, now_s = now_s, now_s + policy.deadline_s
        liveness.record_miss("task", sent_s=sent_s, judged_s=now_s)
        lost_s = now_s
        now_s = max(now_s, sent_s + policy.period_s)
    assert lost_s <= policy.max_detection_s * (1 + 1e-9)


def test_the_defaults_find_a_stopped_task_within_ten_seconds() -> None:
    assert ProbePolicy.from_environment({}) == ProbePolicy()
    assert ProbePolicy().max_detection_s <= 10


@given(st.floats(0.001, 1e6), st.floats(0.001, 1e6), st.integers(1, 1000))
def test_environment(period_s: float, deadline_s: float, misses: int) -> None:
    given_ = {
        "TFPS_PROBE_PERIOD_S": str(period_s),
        "TFPS_PROBE_DEADLINE_S": f" {deadline_s} ",
        "TFPS_PROBE_MISSES": str(misses),
    }
    assert ProbePolicy.from_environment(given_) == ProbePolicy(period_s, deadline_s, misses)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon", "1 s"])
@pytest.mark.parametrize(
    "name", ["TFPS_PROBE_PERIOD_S", "TFPS_PROBE_DEADLINE_S", "TFPS_PROBE_MISSES"]
)
def test_wrong_environment(name: str, text: str) -> None:
    with raises(ConfigError, name, received=repr(text), remedy="expected a"):
        ProbePolicy.from_environment({name: text})


def test_wrong_environments_are_reported_together() -> None:
    with raises(ConfigError, "2 mistakes", received="'2.5'", remedy="seconds"):
        ProbePolicy.from_environment({"TFPS_PROBE_MISSES": "2.5", "TFPS_PROBE_PERIOD_S": "x"})


@pytest.mark.parametrize("wrong", [{"period_s": 0.0}, {"deadline_s": math.nan}, {"misses": 0}])
def test_wrong_policies(wrong: dict[str, float]) -> None:
    [(name, value)] = wrong.items()
    with raises(ConfigError, name, received=value, remedy="expected a"):
        ProbePolicy(**wrong)  # type: ignore[arg-type]
