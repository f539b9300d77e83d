"""The progress line: within a terminal's width there, plain lines in a file."""

from __future__ import annotations

import io
import re
import sys
import threading
import time
from itertools import pairwise

import pytest

from tfps import terminal
from tfps.training.report import progress
from tfps.training.report.line_schedule import LineSchedule
from tfps.training.report.progress import ClusterProgbar
from tfps.training.report.step_rate import StepRate

ESCAPES = re.compile(r"\x1b\[\d*m")


class Cluster:
    progress: ClusterProgbar | None = None

    def __init__(self, rate: StepRate | None = None) -> None:
        self.rate = rate
        self.asked: list[tuple[str, float]] = []

    def describe_pace(self) -> str:
        return "2/2 workers - staleness 1.0"

    def describe_slow_worker(self) -> str:
        return "worker 1 is slow"

    def step_rate(self, kind: str, *, since_s: float) -> StepRate | None:
        self.asked.append((kind, since_s))
        return self.rate


class Clock:
    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.delenv("PYCHARM_HOSTED", raising=False)
    return clock


def _train(clock: Clock, *, target: int | None, verbose: int = 1) -> None:
    """891 steps at 45 steps/s, in executions of 50, then a validation of 3 s."""
    bar = ClusterProgbar(Cluster(), target=target, verbose=verbose)
    for steps in range(50, 901, 50):
        clock.now_s += 50 / 45 if steps <= 891 else 41 / 45
        bar.update(steps, [("accuracy", 0.9), ("loss", 1 / steps)], finalize=False)
    clock.now_s += 3
    bar.target = bar.target or 900  # as Keras does: the steps that it has seen
    bar.update(bar.target, [("accuracy", 0.92), ("val_loss", 0.25)], finalize=True)


def test_a_file_gets_a_plain_line_now_and_then(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = io.StringIO()
    monkeypatch.setattr("sys.stdout", file)
    _train(clock, target=891)
    assert file.getvalue().splitlines() == [
        "450/891 - 10s left - accuracy: 0.9000 - loss: 0.0022 - 45 steps/s - 2/2 workers"
        " - staleness 1.0",
        "891/891 - 23s - accuracy: 0.9200 - loss: 0.0011 - val_loss: 0.2500 - 45 steps/s"
        " - 2/2 workers - staleness 1.0 - worker 1 is slow",
    ]


@pytest.mark.parametrize("columns", [30, 80, 200])
def test_a_terminals_line_fits_until_the_epoch_ends(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    _train(clock, target=891)
    assert terminal.getvalue().count("\n") == 1
    *drawn, last = ESCAPES.sub("", terminal.getvalue()).split("\r")[1:]
    assert len(drawn) == 18
    assert max(len(line) for line in drawn) < columns
    assert all(re.match(r" ?\d+/891 (━+ )?\d+s\b", line) for line in [*drawn, last])
    assert "900/" not in terminal.getvalue()
    for fact in ("23s", "val_loss: 0.2500", "45 steps/s", "2/2 workers", "staleness 1.0"):
        assert fact in last


def test_a_wide_terminal_shows_the_bar(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    bar = ClusterProgbar(Cluster(), target=4)
    clock.now_s += 2.0
    bar.update(1, [("loss", 0.5)])
    bar.update(2, [("loss", 0.5)])  # too soon to be drawn
    assert ESCAPES.sub("", terminal.getvalue()) == (
        "\r1/4 ━━━━━━━━━━━━━━━━━━━━ 6s - loss: 0.5000 - 2/2 workers - staleness 1.0"
    )
    assert f"\x1b[32m{'━' * 5}\x1b[37m{'━' * 15}\x1b[0m" in terminal.getvalue()


def test_steps_are_counted_where_their_number_is_unknown(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = io.StringIO()
    monkeypatch.setattr("sys.stdout", file)
    _train(clock, target=None)
    first, last = file.getvalue().splitlines()
    assert first.startswith("450 - 10s - accuracy: 0.9000")
    assert last.startswith("900/900 - 23s - ")


@pytest.mark.parametrize(("verbose", "lines"), [(0, 0), (2, 1)])
def test_verbosity(clock: Clock, monkeypatch: pytest.MonkeyPatch, verbose: int, lines: int) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    _train(clock, target=891, verbose=verbose)
    assert len(terminal.getvalue().splitlines()) == lines
    assert "\x1b" not in terminal.getvalue()


def test_steps_per_second_leave_out_the_start_and_the_validation(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = io.StringIO()
    monkeypatch.setattr("sys.stdout", file)
    bar = ClusterProgbar(Cluster(), target=150)
    clock.now_s += 20.0  # TensorFlow starts, and traces
    bar.update(50, finalize=False)
    rates = [bar.steps_per_s]
    clock.now_s += 1.0
    bar.update(150, finalize=False)
    clock.now_s += 5.0  # validation
    bar.update(150, finalize=True)
    assert [*rates, bar.steps_per_s] == [None, 100.0]
    assert file.getvalue().splitlines()[-1].startswith("150/150 - 26s - 100 steps/s - 2/2")


def test_steps_per_second_are_those_of_who_counts_the_steps(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keras tells a bar of `verbose=2` of the last step alone."""
    file = io.StringIO()
    monkeypatch.setattr("sys.stdout", file)
    rate = StepRate()
    rate.count(1, now_s=0.0)
    rate.count(149, now_s=2.0)
    cluster = Cluster(rate)
    bar = ClusterProgbar(cluster, target=149, verbose=2, kind="test")
    clock.now_s += 4.0
    bar.update(149, finalize=True)
    assert file.getvalue() == "149/149 - 4s - 74 steps/s - 2/2 workers - staleness 1.0\n"
    assert cluster.asked[-1] == ("test", 100.0)


def test_a_file_hears_of_a_long_epoch_at_least_every_half_minute(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = io.StringIO()
    monkeypatch.setattr("sys.stdout", file)
    bar = ClusterProgbar(Cluster(), target=36_000)
    written = [clock.now_s]
    for tick in range(1, 5 * 3600 + 1):  # one step per execution of an hour, as it is sampled
        clock.now_s = 100.0 + tick / 5
        bar.show(tick * 2)
        if len(file.getvalue().splitlines()) == len(written):
            written.append(clock.now_s)
    pauses = [after - before for before, after in pairwise([*written, clock.now_s])]
    assert max(pauses) <= 30
    assert len(written) < 150
    first = file.getvalue().splitlines()[0]
    assert first == "  100/36000 - 59:50 left - 10 steps/s - 2/2 workers - staleness 1.0"


def test_a_file_hears_of_what_keeps_the_main_thread_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr("sys.stdout", file)
    bar = ClusterProgbar(Cluster(), target=9, schedule=LineSchedule(first_s=0.01, longest_s=0.01))
    with bar.show_during("compiling the training step"):
        ends_at = time.monotonic() + 20
        while file.getvalue().count("\n") < 2 and time.monotonic() < ends_at:
            time.sleep(0.01)
    assert "tfps-progress" not in [thread.name for thread in threading.enumerate()]
    for line in file.getvalue().splitlines():
        assert line == "0/9 - 0s - compiling the training step - 2/2 workers - staleness 1.0"


def test_a_quick_compilation_leaves_no_line_in_a_file(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = io.StringIO()
    monkeypatch.setattr("sys.stdout", file)
    bar = ClusterProgbar(Cluster(), target=9)
    with bar.show_during("compiling the training step"):
        clock.now_s += 3
    bar.show(0, "starting the workers")
    assert file.getvalue() == ""


def test_a_terminal_says_at_once_what_goes_on_before_the_first_step(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal_ = Terminal()
    monkeypatch.setattr("sys.stdout", terminal_)
    monkeypatch.setenv("COLUMNS", "100")
    bar = ClusterProgbar(Cluster(), target=9)
    with bar.show_during("compiling the training step"):
        clock.now_s += 0.01
    bar.show(0, "copying the data to every worker")
    bar.show(0, "copying the data to every worker")  # too soon to be drawn again
    assert terminal.fresh_line() == "\n", "a message does not stand in this line"
    clock.now_s += 1
    bar.show(2)
    drawn = ESCAPES.sub("", terminal_.getvalue()).split("\r")[1:]
    assert [line.strip() for line in drawn] == [
        "0/9 ━━━━━━━━━━━━━━━━━━━━ 0s - compiling the training step - 2/2 workers - staleness 1.0",
        "0/9 ━━━━━━━━━━━━━━━━━━━━ 0s - copying the data to every worker - 2/2 workers"
        " - staleness 1.0",
        "2/9 ━━━━━━━━━━━━━━━━━━━━ 4s - 2/2 workers - staleness 1.0",
    ]
    bar.update(9, [("loss", 0.5)], finalize=True)
    assert terminal.fresh_line() == "", "the line has ended"


def test_validation_counts_in_the_line_of_its_epoch(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = io.StringIO()
    monkeypatch.setattr("sys.stdout", file)
    bar = ClusterProgbar(Cluster(), target=9)
    clock.now_s += 3
    bar.update(9, [("loss", 0.5)], finalize=False)
    for done in range(100):
        clock.now_s += 1
        bar.show(9, f"validation: {done}/100")
    bar.update(9, [("loss", 0.5), ("val_loss", 0.4)], finalize=True)
    assert file.getvalue().splitlines()[0] == (
        "9/9 - 10s - validation: 6/100 - loss: 0.5000 - 2/2 workers - staleness 1.0"
    )
    assert len(file.getvalue().splitlines()) == 5  # at 10, 30, 59 and 88 s, and at the end
    assert "validation:" not in file.getvalue().splitlines()[-1]
