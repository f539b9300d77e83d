"""The progress line of a cluster: metrics, steps per second, workers alive and staleness."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import keras
import numpy as np

from tfps import terminal
from tfps.bridge.keras_private import io_utils
from tfps.training.report.line_schedule import LineSchedule
from tfps.training.report.step_rate import StepRate

# A terminal's line is redrawn at most this often, as Keras does.
REDRAW_INTERVAL_S = 0.05
BAR_WIDTH = 20
# A narrower bar says nothing that the count does not say.
LEAST_BAR_WIDTH = 5


class ClusterPace(Protocol):
    """The measurements of the cluster that the line shows."""

    progress: ClusterProgbar | None  # what shows the epoch that goes on

    def describe_pace(self) -> str:
        """Describe the pace, such as ``2/2 workers - staleness 0.9``."""

    def describe_slow_worker(self) -> str:
        """Describe the worker that is much slower than the others; empty without one."""

    def step_rate(self, kind: str, *, since_s: float) -> StepRate | None:
        """Return the rate of the newest run of a kind, or None if none has begun since a moment."""


class ClusterProgbar:
    """Replaces `keras.utils.Progbar`; shows metrics as they are given.

    On a terminal it is one line that is redrawn and never wider than the terminal; what does not
    fit appears when the epoch ends. Into a file or a pipe it writes plain lines, now and then.

    Args:
        pace: asked each time that the line is written.
        target: steps in all; None while that is unknown.
        verbose: 0 for nothing, 1 for the line, 2 for the last line alone.
        kind: ``"train"`` or ``"test"``, of the steps; what is evaluated while the line is one of
            training is its validation.
        schedule: when a file gets a line.
    """

    def __init__(
        self,
        pace: ClusterPace,
        *,
        target: int | None,
        verbose: int = 1,
        kind: str = "train",
        schedule: LineSchedule = LineSchedule(),  # noqa: B008 - it is frozen
    ) -> None:
        self.target, self.kind = target, kind
        self._pace = pace
        self._own_rate = StepRate()
        self._verbose = verbose
        self._schedule = schedule
        self._terminal_columns = _terminal_columns()
        self._values: dict[str, Any] = {}
        self._note = ""
        self._current = 0
        self._started = self._advanced = time.monotonic()
        self._written = -math.inf if self._terminal_columns else self._started
        self._lines = 0
        self._width = 0

    def update(
        self, current: int, values: Iterable[tuple[str, Any]] = (), finalize: bool | None = None
    ) -> None:
        """Show that steps are done.

        Args:
            current: how many in all; steps of an execution beyond the target do not count.
            values: names and values of metrics; names stay in the order of their first appearance.
            finalize: whether this is the last call; None: when the target is reached.
        """
        now = self._advance(current)
        self._values.update(values)
        last = current == self.target if finalize is None else finalize
        if last or self._is_due(now):
            self._write(now, last=last)

    def show(self, current: int, note: str = "") -> None:
        """Show an execution's completed steps, or a note before its first step has ended.

        Args:
            current: steps that are done, in all.
            note: in a few words; nothing once it goes on by itself.
        """
        now = self._advance(current)
        changes, self._note = note != self._note, note
        if self._is_due(now) or (changes and self._terminal_columns and self._verbose == 1):
            self._write(now, last=False)

    @contextlib.contextmanager
    def show_during(self, note: str) -> Iterator[None]:
        """Show a note while this thread is busy and cannot call `show`.

        On a terminal it is drawn once: code of a user's may run meanwhile, and ask for something.

        Args:
            note: in a few words.
        """
        self.show(self._current, note)
        if self._terminal_columns or self._verbose != 1:
            yield
            return
        ends = threading.Event()
        thread = threading.Thread(
            target=self._write_until, args=(ends,), name="tfps-progress", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()

    def _write_until(self, ends: threading.Event) -> None:
        while not ends.wait(max(0.0, self._due_s() - time.monotonic())):
            self._write(time.monotonic(), last=False)

    def _advance(self, current: int) -> float:
        now = time.monotonic()
        current = current if self.target is None else min(current, self.target)
        if current > self._current:
            self._current, self._advanced, self._note = current, now, ""
            self._own_rate.count(current, now_s=now)
        return now

    def _due_s(self) -> float:
        pause_s = (
            REDRAW_INTERVAL_S if self._terminal_columns else self._schedule.pause_s(self._lines)
        )
        return self._written + pause_s

    def _is_due(self, now: float) -> bool:
        return self._verbose == 1 and now >= self._due_s()

    def _write(self, now: float, *, last: bool) -> None:
        if self._verbose == 0:
            return
        self._written = now
        self._lines += 1
        self._note = "" if last else self._note
        if self._terminal_columns and self._verbose == 1:
            self._redraw(now, last=last)
            terminal.open_line(not last)
        else:
            time_text, texts = self._time_text(now, last=last), self._metric_texts(last=last)
            io_utils.print_msg(" - ".join([self._steps_text(), time_text, *texts]))

    @property
    def steps_per_s(self) -> float | None:
        """The rate from the first reported step to the last, as in `StepRate`."""
        measured = self._pace.step_rate(self.kind, since_s=self._started)
        return (measured or self._own_rate).per_second

    def _redraw(self, now: float, *, last: bool) -> None:
        count, facts = self._steps_text(), self._metric_texts(last=last)
        spent = self._time_text(now, last=last).removesuffix(" left")
        text = " - ".join([spent, *facts])
        # The last column stays free: a full line would make some terminals go on to the next.
        room = self._terminal_columns - 1 - len(count)
        while not last and facts and 1 + len(text) > room:
            facts.pop()
            text = " - ".join([spent, *facts])
        bar = min(BAR_WIDTH, room - len(text) - 2)
        bar = bar if self.target and bar >= LEAST_BAR_WIDTH else 0
        width = len(count) + 1 + len(text) + (bar + 1 if bar else 0)
        blank = " " * max(0, self._width - width)
        self._width = width
        drawn = f" {_bar_text(bar, self._current / self.target)}" if bar and self.target else ""
        io_utils.print_msg(f"\r\x1b[1m{count}\x1b[0m{drawn} {text}{blank}", line_break=last)

    def _steps_text(self) -> str:
        if self.target is None:
            return str(self._current)
        return f"{self._current:>{len(str(self.target))}}/{self.target}"

    def _time_text(self, now: float, *, last: bool) -> str:
        if last or self.target is None or not 0 < self._current < self.target:
            return _duration_text(now - self._started)
        per_step_s = (self._advanced - self._started) / self._current
        return f"{_duration_text(per_step_s * (self.target - self._current))} left"

    def _metric_texts(self, *, last: bool) -> list[str]:
        facts = [self._note] if self._note else []
        facts += [f"{name}: {_number_text(value)}" for name, value in self._values.items()]
        steps_per_s = self.steps_per_s
        if steps_per_s is not None:
            facts.append(f"{steps_per_s:.{0 if steps_per_s >= 10 else 1}f} steps/s")
        facts += self._pace.describe_pace().split(" - ")
        slow = self._pace.describe_slow_worker() if last and self.kind == "train" else ""
        return [*facts, slow] if slow else facts


class TrainingProgress(keras.callbacks.ProgbarLogger):
    """Replaces `ProgbarLogger` for models of our strategy; logs and history stay Keras's.

    Args:
        pace: of the strategy.
    """

    def __init__(self, pace: ClusterPace) -> None:
        super().__init__()
        self._pace = pace
        self.progbar: ClusterProgbar | None = None

    def _maybe_init_progbar(self) -> None:
        if self.progbar is None:
            kind = "train" if self._called_in_fit else "test"
            self.progbar = ClusterProgbar(
                self._pace, target=self.target, verbose=self.verbose, kind=kind
            )
            self._pace.progress = self.progbar

    def _finalize_progbar(self, logs: Any) -> None:
        super()._finalize_progbar(logs)
        self._pace.progress = None


def _terminal_columns() -> int:
    """Return the width for a line that is redrawn; 0 if lines cannot be redrawn."""
    if "ipykernel" in sys.modules or "PYCHARM_HOSTED" in os.environ:
        return sys.maxsize
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def _bar_text(width: int, share: float) -> str:
    done = int(width * share)
    return f"\x1b[32m{'━' * done}\x1b[37m{'━' * (width - done)}\x1b[0m"


def _duration_text(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def _number_text(value: Any) -> str:
    mean = float(np.mean(value))
    return f"{mean:.4f}" if abs(mean) > 1e-3 else f"{mean:.4e}"
