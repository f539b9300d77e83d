"""The decisions about tasks that die, in random histories, with the test's own clock."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.messages import raises
from tfps.errors import ConfigError
from tfps.recovery.fault_tolerance import LONGEST_BACK_OFF_S, FaultTolerance, check_fault_tolerance
from tfps.recovery.restarts.restart_policy import (
    Death,
    EndJob,
    GiveUp,
    Hang,
    Kill,
    Restart,
    RestartPolicy,
    Return,
    Start,
)

WORKERS, SERVERS = 3, 2
TASKS = [*(("worker", i) for i in range(WORKERS)), *(("ps", i) for i in range(SERVERS))]
RESTARTS = st.builds(
    FaultTolerance,
    restart_budget=st.integers(0, 4),
    min_workers=st.integers(1, WORKERS),
    no_worker_timeout_s=st.floats(1, 200),
    hang_timeout_s=st.floats(1, 200),
)
MOMENTS = st.lists(
    st.tuples(
        st.sampled_from(TASKS),
        st.sampled_from(["dies", "returns", "hangs", "stops", "rests"]),
        st.floats(0, 90),
    ),
    max_size=60,
)


class History:
    """Plays the tasks: those that are started run, those that are killed die."""

    def __init__(self, fault_tolerance: FaultTolerance, *, servers_return: bool = True) -> None:
        self.fault_tolerance, self.servers_return = fault_tolerance, servers_return
        self.policy = RestartPolicy(TASKS, fault_tolerance=fault_tolerance)
        self.running = set(TASKS)
        self.now_s = 0.0
        self.starts: Counter[Any] = Counter()
        self.due_s: dict[Any, float] = {}  # when a task that rests is to be started
        self.hangs_since: dict[Any, tuple[bool, float]] = {}  # whether it is stopped
        self.given_up: set[Any] = set()
        self.end: EndJob | None = None

    def dies(self, task: Any) -> None:
        if task not in self.running:
            return
        self.running.discard(task)
        self.hangs_since.pop(task, None)
        usable = task[0] == "worker" or self.servers_return
        was_over = self.end is not None
        actions = self.policy.handle(Death(task, -9, is_usable=usable), now_s=self.now_s)
        if was_over:
            assert actions == []
            return
        first, *rest = actions
        if isinstance(first, Restart):
            assert not rest
            assert usable
            assert first.task == task
            assert first.number == self.starts[task] + 1 <= self.fault_tolerance.restart_budget
            assert first.after_s == self.fault_tolerance.back_off_s(first.number)
            self.due_s[task] = self.now_s + first.after_s
            return
        assert first == GiveUp(task)
        assert not usable or self.starts[task] == self.fault_tolerance.restart_budget
        self.given_up.add(task)
        left = sum(kind == "worker" for kind, _ in set(TASKS) - self.given_up)
        must_end = task[0] == "ps" or left < self.fault_tolerance.min_workers
        assert [type(action) for action in rest] == [EndJob] * must_end
        for end in rest:
            assert isinstance(end, EndJob)
            assert f"{task[0]} {task[1]}" in end.reason
            self.end = end

    def returns(self, task: Any) -> None:
        if task in self.given_up and self.end is None:  # another process has started it
            self.given_up.discard(task)
            self.running.add(task)
        if task in self.running:
            self.hangs_since.pop(task, None)
            assert self.policy.handle(Return(task), now_s=self.now_s) == []

    def hangs(self, task: Any, *, is_stopped: bool = False) -> None:
        if task in self.running:
            if self.hangs_since.get(task, (None,))[0] != is_stopped:
                self.hangs_since[task] = is_stopped, self.now_s
            assert self.policy.handle(Hang(task, is_stopped), now_s=self.now_s) == []

    def stops(self, task: Any) -> None:
        self.hangs(task, is_stopped=True)

    def rests(self, _task: Any) -> None:
        """Let time pass without an event."""

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        actions = self.policy.due_actions(now_s=self.now_s)
        if self.end:
            assert actions == []
            return
        expected: list[Any] = [
            Start(task) for task, at_s in self.due_s.items() if at_s <= self.now_s
        ]
        limits_s = {
            True: self.fault_tolerance.no_worker_timeout_s,
            False: self.fault_tolerance.hang_timeout_s,
        }
        expected += [
            Kill(task, limits_s[is_stopped], is_stopped)
            for task, (is_stopped, since_s) in self.hangs_since.items()
            if since_s + limits_s[is_stopped] <= self.now_s
        ]
        assert Counter(actions) == Counter(expected)
        for action in actions:
            if isinstance(action, Start):
                del self.due_s[action.task]
                self.starts[action.task] += 1
                self.running.add(action.task)
            elif isinstance(action, Kill):
                self.dies(action.task)


@given(RESTARTS, MOMENTS, st.booleans())
def test_each_death_is_answered_and_no_budget_exceeded(
    fault_tolerance: FaultTolerance, moments: list[tuple[Any, str, float]], servers_return: bool
) -> None:
    history = History(fault_tolerance, servers_return=servers_return)
    for task, what, seconds in moments:
        getattr(history, what)(task)
        history.pass_time(seconds)
    # Each task that is away by now is started or given up, or the job has ended: none waits.
    max_detection_s = max(fault_tolerance.no_worker_timeout_s, fault_tolerance.hang_timeout_s)
    for seconds in (max_detection_s, LONGEST_BACK_OFF_S):
        history.pass_time(seconds)
    if history.end is None:
        assert set(TASKS) == history.running | history.given_up
        assert all(kind == "worker" for kind, _ in history.given_up)
        assert dict(history.starts) == history.policy.restart_counts


def test_the_back_off_doubles_up_to_a_limit() -> None:
    fault_tolerance = FaultTolerance(restart_budget=100)
    waits = [fault_tolerance.back_off_s(number) for number in range(1, 101)]
    assert waits[:4] == [0.25, 0.5, 1.0, 2.0]
    assert waits[-1] == LONGEST_BACK_OFF_S
    assert waits == sorted(waits)


def test_a_death_that_is_told_twice_counts_once() -> None:
    policy = RestartPolicy(TASKS, fault_tolerance=FaultTolerance(restart_budget=1))
    death = Death(("worker", 0), -9)
    assert policy.handle(death, now_s=0.0) != []
    assert policy.handle(death, now_s=0.1) == []
    assert policy.due_actions(now_s=10.0) == [Start(("worker", 0))]


@pytest.mark.parametrize(
    ("fault_tolerance", "deaths", "reason"),
    [
        (FaultTolerance(restart_budget=0), [("worker", 0), ("worker", 1), ("worker", 2)],
         "no worker is left: worker 0, worker 1, worker 2 died, and the budget"),
        (FaultTolerance(restart_budget=0, min_workers=2), [("worker", 2), ("worker", 0)],
         "1 worker left, fewer than min_workers=2: worker 0, worker 2 died"),
        (FaultTolerance(restart_budget=0), [("ps", 1)],
         "what ps 1 held is lost: ps 1 died, and the budget of restarts is 0. Start the job again"),
    ],
)  # fmt: skip
def test_the_reason_names_who_is_gone(
    fault_tolerance: FaultTolerance, deaths: list[Any], reason: str
) -> None:
    policy = RestartPolicy(TASKS, fault_tolerance=fault_tolerance)
    actions = [action for task in deaths for action in policy.handle(Death(task, 1), now_s=0.0)]
    assert isinstance(actions[-1], EndJob)
    assert actions[-1].reason.startswith(reason)
    assert policy.ended == actions[-1]


def test_what_cannot_work_is_refused_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        FaultTolerance(
            restart_budget=-1, min_workers=0, no_worker_timeout_s=math.nan, hang_timeout_s=0
        )
    assert raised.value.problems == (
        "restart_budget: received -1, expected a whole number from 0",
        "min_workers: received 0, expected a whole number from 1",
        "no_worker_timeout_s: received nan, expected a number of seconds above 0",
        "hang_timeout_s: received 0, expected a number of seconds above 0",
    )
    with raises(ConfigError, "restart_budget", received="'3'", remedy="a whole number"):
        FaultTolerance(restart_budget="3")  # type: ignore[arg-type]
    assert FaultTolerance(no_worker_timeout_s=math.inf).size_problems(workers=1) == []
    with raises(ConfigError, "min_workers", received=3, remedy="at most 2"):
        check_fault_tolerance(FaultTolerance(min_workers=3), workers=2)
    with raises(ConfigError, "fault_tolerance", received=3, remedy="tfps.FaultTolerance"):
        check_fault_tolerance(3, workers=2)  # type: ignore[arg-type]
    assert check_fault_tolerance(None, workers=1) == FaultTolerance()
