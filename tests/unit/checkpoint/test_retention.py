"""The checkpoints that stay: examples, and what holds for any of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.messages import raises
from tfps.checkpoint.retention import (
    AnyOf,
    KeepBest,
    KeepEvery,
    KeepLatest,
    RetentionPolicy,
    SavedCheckpoint,
    find_superfluous,
)
from tfps.errors import ConfigError

POLICIES: list[RetentionPolicy] = [
    KeepLatest(2),
    KeepEvery(hours=1.5),
    KeepBest("loss", count=2),
    KeepBest("accuracy", mode="max"),
    AnyOf(KeepLatest(1), KeepEvery(hours=3), KeepBest("loss")),
]
SAVES = st.lists(
    st.tuples(st.floats(0, 20000), st.one_of(st.none(), st.sampled_from([0.1, 0.2, math.nan]))),
    max_size=12,
)


def _saved(saves: list[tuple[float, float | None]]) -> list[SavedCheckpoint]:
    """Numbers from 1, each some seconds after the one before."""
    now_s, saved = 0.0, []
    for number, (seconds, loss) in enumerate(saves, start=1):
        now_s += seconds
        metrics = {} if loss is None else {"loss": loss}
        saved.append(SavedCheckpoint(number=number, saved_at_s=now_s, metrics=metrics))
    return saved


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@given(saves=SAVES)
def test_what_went_before_changes_nothing(
    policy: RetentionPolicy, saves: list[tuple[float, float | None]]
) -> None:
    """Deleting after each save keeps what the policy keeps of all saves, and the newest."""
    everything = _saved(saves)
    there: list[SavedCheckpoint] = []
    for one in everything:
        there.append(one)
        gone = find_superfluous(there, policy)
        assert one.number not in gone
        there = [other for other in there if other.number not in gone]
        assert find_superfluous(there, policy) == []
    expected = policy.kept(everything) | {one.number for one in everything[-1:]}
    assert {one.number for one in there} == expected


@given(saves=SAVES, count=st.integers(1, 5))
def test_the_latest(saves: list[tuple[float, float | None]], count: int) -> None:
    everything = _saved(saves)
    gone = find_superfluous(everything, KeepLatest(count))
    assert gone == [one.number for one in everything[:-count]]


def test_the_best_by_either_mode() -> None:
    values = {1: 0.5, 2: 0.2, 3: math.nan, 4: 0.9, 5: 0.9}
    saved = [SavedCheckpoint(number=n, saved_at_s=0.0, metrics={"a": v}) for n, v in values.items()]
    assert KeepBest("a", mode="min").kept(saved) == {2}
    assert KeepBest("a", mode="max").kept(saved) == {5}
    assert KeepBest("a", mode="max", count=3).kept(saved) == {1, 4, 5}
    assert KeepBest("b").kept(saved) == set()
    assert find_superfluous(saved, KeepBest("b")) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("make", "named", "received"),
    [
        (lambda: KeepLatest(0), "count", "0"),
        (lambda: KeepLatest(True), "count", "True"),
        (lambda: KeepEvery(hours=0), "hours", "0"),
        (lambda: KeepEvery(hours=math.nan), "hours", "nan"),
        (lambda: KeepBest(""), "metric", "''"),
        (lambda: KeepBest("loss", mode="most"), "mode", "'most'"),
        (lambda: KeepBest("loss", count=-1), "count", "-1"),
        (AnyOf, "AnyOf", "()"),
        (lambda: AnyOf(3), "AnyOf", "3"),  # type: ignore[arg-type]
    ],
)
def test_refused(make: object, named: str, received: str) -> None:
    with raises(ConfigError, named, received=received, remedy="expected"):
        make()  # type: ignore[operator]
