"""The shapes of `tfps bench strategies`: a model on a cluster, and what is looked at there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DENSE, MIXED, LARGE = "dense", "mixed", "large"


@dataclass(frozen=True, kw_only=True)
class StrategyShape:
    """A model on a cluster.

    Args:
        title: in tables and plots.
        model: of the scripts.
        workers: how many.
        ps: how many parameter servers, where a strategy has them.
        goal: the test accuracy whose seconds are counted; None: there is none.
        memory_kib: what a task may take, as `ulimit -d` counts it; None: no limit.
        is_slow: whether steps wait 50 ms, so that workers behave like machines of their own; one of
            the most of them is slowed down and killed.
        has_seeds: whether it is trained once for each repetition.
    """

    title: str
    model: str
    workers: int
    ps: int = 1
    goal: float | None = None
    memory_kib: int | None = None
    is_slow: bool = False
    has_seeds: bool = False


SLOW_WORKERS = (1, 2, 4)
# Of which a task has 1.4 GB before it holds anything, most of it for stacks of threads.
MEMORY_KIB = 4_100_000


def _slow(workers: int) -> StrategyShape:
    title = f"steps that wait 50 ms, {workers} worker{'s' if workers > 1 else ''}"
    return StrategyShape(title=title, model=DENSE, workers=workers, is_slow=True)


SHAPES: Mapping[str, StrategyShape] = {
    DENSE: StrategyShape(
        title="CNN of the reference job, 2 workers",
        model=DENSE,
        workers=2,
        goal=0.83,
        has_seeds=True,
    ),
    MIXED: StrategyShape(
        title="wide & deep with 26 tables, 2 workers",
        model=MIXED,
        workers=2,
        goal=0.8,
        has_seeds=True,
    ),
    LARGE: StrategyShape(
        title="2.7 GB of tables, tasks of 4.2 GB, 4 workers",
        model=LARGE,
        workers=4,
        ps=4,
        memory_kib=MEMORY_KIB,
    ),
    **{f"slow_{workers}": _slow(workers) for workers in SLOW_WORKERS},
}
