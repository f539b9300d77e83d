"""The record of the work that a process's strategies gave to their workers."""

from __future__ import annotations

from dataclasses import dataclass

from tfps.training.worker_use import WorkerUse


@dataclass(eq=False)
class Runtime:
    closed: bool = False


def test_a_process_without_a_strategy_misses_nothing() -> None:
    work = WorkerUse()
    assert not work.is_missing
    assert not work.is_possible


def test_work_is_missing_until_some_begins_also_of_another_strategy() -> None:
    work, first, second = WorkerUse(), Runtime(), Runtime()
    work.expect(first)
    assert work.is_missing
    work.expect(second)
    work.begin()
    assert not work.is_missing


def test_work_is_possible_while_a_strategy_is_open() -> None:
    work, runtimes = WorkerUse(), [Runtime(), Runtime()]
    for runtime in runtimes:
        work.expect(runtime)
    runtimes[0].closed = True
    assert _is_possible(work)
    del runtime, runtimes
    assert not _is_possible(work), "a strategy that nothing refers to is closed"
    assert work.is_missing, "what it left undone is remembered"


def _is_possible(work: WorkerUse) -> bool:
    """In a call of its own: mypy takes an attribute to stay as it was asserted."""
    return work.is_possible
