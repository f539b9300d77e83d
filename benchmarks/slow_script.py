"""Steps that wait 50 ms: at the pace of all, beside a slow worker, and after one was killed.

The first layer of the model notes each step in a folder, on every worker
(examples/strategies/slow_steps.py), so nothing of a strategy is changed to look at it.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from benchmarks.script_run import CANNOT, ScriptRun

STEP = re.compile(r"step-(\d+)-(\d+)")
POLL_INTERVAL_S = 0.1
BEGIN_TIMEOUT_S = 150.0  # to the first steps of the last worker
FIRST_STEPS = 5
SETTLE_S = 1.0  # after something has changed
AFTER_S = 2.0  # that a worker trains again
TIMEOUT_S = 30.0  # with a worker that does not come back
STANDS_STILL = f"stands for {TIMEOUT_S:g} s"

Steps = Mapping[int, Sequence[float]]  # when each process began its steps, in order


@dataclass(frozen=True)
class SlowScript:
    """A script whose steps wait: its pace is measured, and its workers are slowed or killed."""

    run: ScriptRun
    processes: int  # that take steps
    spare: int  # of them whose gradient is not waited for, and dropped
    window_s: float  # how long its pace is looked at
    has_faults: bool  # whether a worker is slowed down, and then killed

    def measure(self) -> dict[str, Any]:
        """Return steps of all workers per second, and what became of them after faults."""
        if not self._wait(self._is_under_way, BEGIN_TIMEOUT_S):
            return {CANNOT: self.run.why_ended(self.run.process.status())}
        pace = self._pace()
        if not self.has_faults:
            return {"steps_per_s": pace}
        victim = max(self.steps)  # the last one that was started
        mark = self.run.steps_folder / f"slow-{victim}"
        mark.touch()
        beside_slow = self._pace()
        mark.unlink()
        time.sleep(SETTLE_S)
        return {"steps_per_s": pace, "beside_slow": beside_slow, **self._kill(victim)}

    def _is_under_way(self) -> bool:
        """Return whether all take steps; the first ones wait for what is traced and optimized."""
        return sum(len(times) >= FIRST_STEPS for times in self.steps.values()) >= self.processes

    @property
    def steps(self) -> Steps:
        """The steps until now, by process."""
        return parse_steps(os.listdir(self.run.steps_folder))

    def _pace(self) -> float:
        time.sleep(SETTLE_S)
        begin_s = time.time()
        time.sleep(self.window_s)
        return pace(self.steps, begin_s, time.time(), spare=self.spare)

    def _kill(self, victim: int) -> dict[str, Any]:
        killed_s = time.time()
        os.kill(victim, signal.SIGKILL)
        before = set(self.steps)
        is_back = self._wait(lambda: bool(set(self.steps) - before), TIMEOUT_S)
        if is_back:
            time.sleep(AFTER_S)
        status, end_s = self.run.process.status(), time.time()
        rest_s = longest_rest_s(self.steps, killed_s, end_s)
        if status is not None:
            return {"after_kill": "ends", "words": self.run.why_ended(status)}
        if not is_back and rest_s > TIMEOUT_S / 2:
            return {"after_kill": STANDS_STILL}
        back = [times[0] - killed_s for p, times in self.steps.items() if p not in before]
        return {"after_kill": "goes on", "rest_s": rest_s, "back_s": min(back, default=None)}

    def _wait(self, is_done: Callable[[], bool], timeout_s: float) -> bool:
        """Return whether it came to it, before the script ended and within the time."""
        ends_at = time.monotonic() + timeout_s
        while self.run.process.status() is None and time.monotonic() < ends_at:
            if is_done():
                return True
            time.sleep(POLL_INTERVAL_S)
        return is_done() and self.run.process.status() is None


def parse_steps(names: Sequence[str]) -> Steps:
    """Parse steps from the names of files.

    >>> parse_steps(["step-7-2000000", "slow-7", "step-7-1000000"])
    {7: [1.0, 2.0]}
    """
    found: dict[int, list[float]] = defaultdict(list)
    for name in names:
        if match := STEP.fullmatch(name):
            found[int(match[1])].append(int(match[2]) / 1e6)
    return {process: sorted(times) for process, times in found.items()}


def pace(steps: Steps, begin_s: float, end_s: float, *, spare: int) -> float:
    """Return steps per second of all workers together between two moments.

    With spare workers only what is not dropped counts: rounds are those of the fastest worker, and
    each takes the steps of all but the spare ones.
    """
    counts = [sum(begin_s <= at < end_s for at in times) for times in steps.values()]
    taken = max(counts) * (len(counts) - spare) if spare else sum(counts)
    return taken / (end_s - begin_s)


def longest_rest_s(steps: Steps, begin_s: float, end_s: float) -> float:
    """Return the longest time in which no worker began a step."""
    times = sorted(at for times in steps.values() for at in times if begin_s < at < end_s)
    return max(later - earlier for earlier, later in pairwise([begin_s, *times, end_s]))
