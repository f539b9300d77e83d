"""The log of scheduled functions: whatever is saved, lost and repeated, each counts once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tfps.consistency.function_log import FunctionLog
from tfps.consistency.round_point import KEPT_POINTS, RoundPoint


def point(number: int) -> RoundPoint:
    return RoundPoint(checkpoint=number, ledgers=(), applied=())


@dataclass
class Save:
    """A checkpoint: which functions it has, and how often each."""

    point: RoundPoint
    applied: Counter[int] = field(default_factory=Counter)


class Job(RuleBasedStateMachine):
    """Servers that apply functions, checkpoints that are complete later or never, and losses."""

    def __init__(self) -> None:
        super().__init__()
        self.log = FunctionLog[int]()
        self.applied: Counter[int] = Counter()
        self.under_way: list[int] = []
        self.done: set[int] = set()  # somebody has got the result
        self.saves: dict[int, Save] = {}
        self.complete: set[int] = set()
        self.scheduled = self.number = 0

    @rule()
    def schedule(self) -> None:
        self.under_way.append(self.scheduled)
        self.scheduled += 1

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        function = data.draw(st.sampled_from(self.under_way))
        self.under_way.remove(function)
        self.applied[function] += 1
        self.done.add(function)
        assert self.log.append(function) == bool(self.log.points)

    @precondition(lambda self: not self.under_way)
    @rule()
    def save(self) -> None:
        self.number += 1
        self.saves[self.number] = Save(point(self.number), self.applied.copy())
        self.log.note(self.saves[self.number].point, committed=self.complete)

    @precondition(lambda self: self.number)
    @rule()
    def newest_is_written(self) -> None:
        self.complete.add(self.number)

    @precondition(lambda self: self.complete)
    @rule(is_damaged=st.booleans())
    def go_back(self, is_damaged: bool) -> None:
        """To the newest that is complete, or the one before if it is damaged."""
        there = [known for known in self.log.points if known.checkpoint in self.complete]
        for back in there[-2:-1] if is_damaged else there[-1:]:
            repeated = self.log.go_back(back)
            assert set(repeated) <= self.done
            self.applied = self.saves[back.checkpoint].applied.copy()
            self.under_way = [*repeated, *self.under_way]

    @rule()
    def break_off(self) -> None:
        """Something else changes variables."""
        self.log.break_off()
        assert not self.log.points

    @invariant()
    def each_counts_once(self) -> None:
        assert set(self.applied.values()) <= {1}
        assert set(self.applied) == set(range(self.scheduled)) - set(self.under_way)

    @invariant()
    def what_two_complete_checkpoints_have_is_forgotten(self) -> None:
        points = self.log.points
        if not points:
            assert len(self.log) == 0
            return
        oldest = self.saves[points[0].checkpoint].applied
        assert len(self.log) == len(set(self.applied) - set(oldest))
        # At the newest point all but the newest could be complete.
        known = [p.checkpoint for p in points[:-1] if p.checkpoint in self.complete]
        assert len(known) <= KEPT_POINTS + 1


TestJob = Job.TestCase
TestJob.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def test_a_full_log_begins_anew() -> None:
    log = FunctionLog[int](capacity=2)
    log.note(point(1), committed=[])
    assert [log.append(number) for number in range(3)] == [True, True, False]
    assert (log.points, len(log)) == ([], 0)
    log.note(point(2), committed=[])
    assert log.append(3)
    assert log.go_back(point(2)) == [3]


def test_a_point_that_is_noted_again_moves() -> None:
    log = FunctionLog[str]()
    log.note(point(1), committed=[])
    log.append("a")
    log.note(point(1), committed=[1])
    log.append("b")
    assert (log.since_newest, log.go_back(point(1))) == (1, ["b"])
