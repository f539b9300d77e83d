"""Draws a timeline of three workers for each mode: `python docs/guide/timelines.py`.

The first two workers take 4 and 4.6 units for a step, the third one takes 9, an exchange takes 1.
The library's own functions, those that the servers trace, decide which worker waits for which.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tfps.consistency.clock import Clocks, decide

FOLDER = Path(__file__).parent / "pictures"
STEPS = (4.0, 4.6, 9.0)  # units of time for one step of each worker
EXCHANGE = 1.0
END = 64.0
VECTORS: Any = SimpleNamespace(where=np.where, sum=np.sum, smallest=np.min, largest=np.max)
COLORS = {"step": "#1f6fb4", "own": "#7fb2dc", "exchange": "#e07b22", "wait": "#e3e3e3"}
LABELS = {"step": "step", "own": "step by itself", "exchange": "exchange", "wait": "waits"}
INK, DROPPED = "#333333", "#b3261e"


@dataclass
class Timeline:
    """The steps of each worker over time, and the moments in which a server applies an update."""

    title: str
    bars: list[tuple[int, float, float, str]] = field(default_factory=list)
    updates: list[float] = field(default_factory=list)
    dropped: list[tuple[int, float]] = field(default_factory=list)

    def add(self, worker: int, kind: str, begin: float, end: float) -> float:
        """Add a bar of a worker, and return its end."""
        if end > begin:
            self.bars.append((worker, begin, end, kind))
        return end


Ask = Callable[[int, float], Sequence[int]]  # of a worker and a time: workers that may start


def _mask(worker: int) -> Any:
    return np.eye(len(STEPS), dtype=np.int64)[worker]


class Open:
    """A gate that lets every worker go on at once."""

    def __call__(self, worker: int, now: float) -> Sequence[int]:
        return [worker]


class Bounded:
    """A bound, decided as on a server."""

    def __init__(self, bound_steps: int) -> None:
        zeros = np.zeros(len(STEPS), np.int64)
        self.bound_steps, self.clocks = bound_steps, Clocks(zeros, zeros + 1, zeros)
        self.largest_gap = 0

    def __call__(self, worker: int, now: float) -> Sequence[int]:
        mask = _mask(worker)
        self.clocks = self.clocks.after_step(mask, self.clocks.clocks + mask, vectors=VECTORS)
        decision = decide(self.clocks, asking=mask, bound_steps=self.bound_steps, vectors=VECTORS)
        self.clocks, self.largest_gap = decision.after, max(self.largest_gap, int(decision.gap))
        started = decision.released + mask * (1 - decision.blocked)
        return [int(each) for each in np.flatnonzero(started)]


def at_once(title: str, ask: Ask, *, period_steps: int = 1, begin: float = 0.0) -> Timeline:
    """Each push is applied when it comes; a gate says which workers may start a step then."""
    timeline = Timeline(title)
    free = [begin] * len(STEPS)  # since when each worker has nothing to do
    events: list[tuple[float, int]] = []

    def start(worker: int, now: float) -> None:
        timeline.add(worker, "wait", free[worker], now)
        for _ in range(period_steps):
            now = timeline.add(worker, "step", now, now + STEPS[worker])
        heapq.heappush(events, (timeline.add(worker, "exchange", now, now + EXCHANGE), worker))

    for worker in range(len(STEPS)):
        start(worker, begin)
    while events and events[0][0] < END:
        now, worker = heapq.heappop(events)
        timeline.updates.append(now - EXCHANGE / 2)
        free[worker] = now
        for each in ask(worker, now):
            start(each, now)
    for worker in {*range(len(STEPS))} - {each for _, each in events}:
        timeline.add(worker, "wait", free[worker], END)
    return timeline


def in_rounds(title: str, *, backup_workers: int = 0, period_steps: int = 1) -> Timeline:
    """Servers apply one mean of what the first workers of a round have pushed."""
    timeline, required = Timeline(title), len(STEPS) - backup_workers
    number, contributors = 0, list[int]()
    pushes: list[tuple[float, int, int]] = []  # time, worker, the round it was computed from

    def start(worker: int, now: float) -> None:
        for _ in range(period_steps):
            now = timeline.add(worker, "step", now, now + STEPS[worker])
        now = timeline.add(worker, "exchange", now, now + EXCHANGE / 2)
        heapq.heappush(pushes, (now, worker, number))

    for worker in range(len(STEPS)):
        start(worker, 0.0)
    arrived: dict[int, float] = {}
    while pushes and pushes[0][0] < END:
        now, worker, computed_from = heapq.heappop(pushes)
        released = [worker]
        if computed_from != number:
            timeline.dropped.append((worker, now))
        else:
            contributors.append(worker)
            arrived[worker], released = now, []
            if len(contributors) == required:
                timeline.updates.append(now)
                released, contributors, number = contributors, [], number + 1
        for each in released:
            timeline.add(each, "wait", arrived.pop(each, now), now)
            start(each, timeline.add(each, "exchange", now, now + EXCHANGE / 2))
    for worker, since in arrived.items():
        timeline.add(worker, "wait", since, END)
    return timeline


def warmed_up(title: str, steps: int) -> Timeline:
    """Each worker takes some steps by itself; then all go on from the mean of the weights."""
    begin = max(STEPS) * steps
    timeline = at_once(title, Open(), begin=begin + EXCHANGE)
    for worker, step in enumerate(STEPS):
        end = 0.0
        for _ in range(steps):
            end = timeline.add(worker, "own", end, end + step)
        timeline.add(worker, "wait", end, begin)
        timeline.add(worker, "exchange", begin, begin + EXCHANGE)
    timeline.updates.insert(0, begin + EXCHANGE / 2)
    return timeline


def timelines() -> Iterator[tuple[str, Timeline]]:
    """One for each mode, by the name of its picture."""
    yield "asynchronous", at_once("Asynchronous()", Open())
    yield "bounded_staleness", at_once("BoundedStaleness(1)", Bounded(1))
    yield "synchronous", in_rounds("Synchronous()")
    yield "backup_workers", in_rounds("Synchronous(backup_workers=1)", backup_workers=1)
    yield "local_steps", at_once("LocalSteps(3)", Open(), period_steps=3)
    title = "LocalSteps(3, synchronous_periods=True)"
    yield "local_steps_synchronous", in_rounds(title, period_steps=3)
    yield "warm_up", warmed_up("Asynchronous(warm_up_steps=2)", 2)


def draw(timeline: Timeline) -> Figure:
    """A row for each worker, and one for what the servers apply."""
    figure = Figure(figsize=(8, 1.9), layout="constrained")
    axes = figure.subplots()
    for worker, begin, end, kind in timeline.bars:
        axes.broken_barh(
            [(begin, end - begin)],
            (len(STEPS) - worker - 0.3, 0.6),
            color=COLORS[kind],
            edgecolor="white",
            linewidth=0.6,
        )
    for now in timeline.updates:
        axes.plot([now, now], [-0.3, 0.3], color=INK, linewidth=1.4)
    for worker, now in timeline.dropped:
        axes.plot(now, len(STEPS) - worker, marker="x", color=DROPPED, markersize=7)
    rows = ["updates", *(f"worker {worker}" for worker in reversed(range(len(STEPS))))]
    axes.set_yticks(range(len(rows)), rows, color=INK)
    axes.set_xticks([])
    axes.set_xlim(0, END)
    axes.set_ylim(-0.6, len(STEPS) + 0.6)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    kinds = [kind for kind in COLORS if any(bar[3] == kind for bar in timeline.bars)]
    handles: list[Any] = [Patch(color=COLORS[kind], label=LABELS[kind]) for kind in kinds]
    if timeline.dropped:
        handles.append(
            axes.plot([], [], marker="x", linestyle="", color=DROPPED, label="dropped")[0]
        )
    figure.legend(handles=handles, loc="outside upper right", ncols=5, frameon=False, fontsize=8)
    figure.suptitle(timeline.title, x=0.01, ha="left", fontsize=10, color=INK)
    return figure


def main() -> None:
    """Write all pictures into the folder that is given, or beside this file."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for name, timeline in timelines():
        figure = draw(timeline)
        FigureCanvasAgg(figure)
        figure.savefig(folder / f"{name}.png", dpi=120)


if __name__ == "__main__":
    main()
