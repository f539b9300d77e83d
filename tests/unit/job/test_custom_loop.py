"""How the custom loop follows what workers execute, with executions that the test ends."""

from __future__ import annotations

import threading

import pytest

from tfps.job import custom_loop
from tfps.job.custom_loop import follow


class Execution:
    """Answers as a scheduled function does: sums of loss, hits, examples and steps."""

    def __init__(self, steps: int) -> None:
        self._status_available_event = threading.Event()
        self.steps = steps

    def fetch(self) -> list[float]:
        assert self._status_available_event.is_set()
        return [2.0 * self.steps, 1.0 * self.steps, 4.0 * self.steps, self.steps]


class Progress:
    def __init__(self) -> None:
        self.seen: list[int] = []
        self.notes: list[str] = []

    def show(self, steps: int, note: str) -> None:
        self.notes.append(note)

    def update(self, steps: int, values: object, *, finalize: bool) -> None:
        assert not finalize  # validation is still to come
        self.seen.append(steps)


def test_executions_are_counted_when_they_end_and_not_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executions = [Execution(steps) for steps in (50, 50, 50, 50, 49)]
    ends = iter([[1], [2], [0, 3], [4]])  # the first worker traces for longer

    class Time:
        @staticmethod
        def sleep(_seconds: float) -> None:
            for index in next(ends):
                executions[index]._status_available_event.set()

    monkeypatch.setattr(custom_loop, "time", Time)
    progress = Progress()
    assert follow(list(executions), progress, workers=2) == (0.5, 0.25, 4 * 249)
    assert progress.seen == [100, 200, 249]
    assert progress.notes == ["waiting for the first steps", *[""] * 3]
