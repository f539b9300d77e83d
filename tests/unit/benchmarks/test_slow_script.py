from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.slow_script import SlowScript, longest_rest_s, pace, steps_of
from tfps.launch.process import TaskProcess, start_program

moments = st.lists(st.integers(1, 10_000_000), unique=True, max_size=20)


@given(st.dictionaries(st.integers(1, 99), moments.filter(bool), max_size=4))
def test_steps_are_told_by_the_names_of_files(steps: dict[int, list[int]]) -> None:
    names = [f"step-{process}-{at}" for process, times in steps.items() for at in times]
    found = steps_of([*names, "slow-3", "other"])
    assert found == {process: sorted(at / 1e6 for at in times) for process, times in steps.items()}


def test_a_pace_is_that_of_the_window() -> None:
    steps = {1: [0.0, 1.0, 1.5, 2.0], 2: [1.0, 3.0]}
    assert pace(steps, 1.0, 2.0, spare=0) == 3


def test_with_a_spare_worker_what_is_dropped_does_not_count() -> None:
    # Four rounds of three workers, of which one only takes part in one; two are waited for.
    steps = {1: [0.1, 0.3, 0.5, 0.7], 2: [0.1, 0.3, 0.5, 0.7], 3: [0.2]}
    assert pace(steps, 0.0, 1.0, spare=1) == 8
    assert pace(steps, 0.0, 1.0, spare=0) == 9


@given(moments, moments)
def test_nobody_rests_longer_than_a_rest(first: list[int], second: list[int]) -> None:
    steps = {1: [float(at) for at in first], 2: [float(at) for at in second]}
    rest = longest_rest_s(steps, 0.0, 10_000_001.0)
    times = sorted({0.0, *steps[1], *steps[2], 10_000_001.0})
    assert rest == max(b - a for a, b in itertools.pairwise(times))


# A worker that steps every 10 ms, or slower beside its mark; the parent starts it again, or ends.
WORKER = """
import os, sys, time
folder = sys.argv[1]
while True:
    open(f"{folder}/step-{os.getpid()}-{time.time_ns() // 1000}", "w").close()
    time.sleep(0.1 if os.path.exists(f"{folder}/slow-{os.getpid()}") else 0.01)
"""
PARENT = """
import subprocess, sys
worker, folder, restarts = sys.argv[1:]
for _ in range(int(restarts) + 1):
    subprocess.run([sys.executable, "-c", worker, folder])
print("no worker is left"); sys.exit(4)
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Any]:
    started: list[TaskProcess] = []
    folder = tmp_path / "steps"
    folder.mkdir()

    def start(restarts: int) -> SlowScript:
        process = start_program(
            name="script",
            command=[sys.executable, "-c", PARENT, WORKER, str(folder), str(restarts)],
            environment=dict(os.environ),
            log_path=tmp_path / "log",
        )
        started.append(process)
        run: Any = SimpleNamespace(
            process=process, steps_folder=folder, why_ended=lambda status: f"status {status}"
        )
        return SlowScript(run=run, processes=1, spare=0, window_s=0.3, has_faults=True)

    yield start
    for process in started:
        process.kill()


# Whole programs, as those of tests/integration/bench.
@pytest.mark.slow
def test_a_worker_that_comes_back_is_seen(program: Any) -> None:
    answer = program(1).answer()
    assert answer["after_kill"] == "goes on"
    assert 0 < answer["beside_slow"] < answer["steps_per_s"]
    assert 0 < answer["rest_s"] <= answer["back_s"] + 1


# Whole programs, as those of tests/integration/bench.
@pytest.mark.slow
def test_a_script_that_ends_with_its_worker_is_seen(program: Any) -> None:
    answer = program(0).answer()
    assert (answer["after_kill"], answer["words"]) == ("ends", "status 4")
