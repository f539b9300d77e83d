"""Advises which strategy to train a job with. Pure: sizes and limits in, one sentence out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfps.placement.forecast import PROCESS_BYTES
from tfps.placement.job_sizes import JobSizes
from tfps.placement.measured import SHARE_OF_ONE_PROCESS, pays_from_ms, push_ms
from tfps.placement.training_strategy import (
    ALL_REDUCED,
    ASYNCHRONOUS,
    LOCAL_STEPS,
    ONE_PROCESS,
    STRATEGIES,
    TrainingStrategy,
)
from tfps.units import format_bytes, format_seconds


@dataclass(frozen=True)
class MemoryLimits:
    """The memory of each kind of task; None if it is not known, so that everything fits.

    Args:
        worker_bytes: the memory of each task that computes.
        server_bytes: the memory of each parameter server.
    """

    worker_bytes: float | None = None
    server_bytes: float | None = None


@dataclass(frozen=True)
class StrategySizes:
    """The memory and the traffic of a strategy for a job.

    Args:
        strategy: the strategy.
        task_bytes: the memory of the largest task that computes.
        server_bytes: the memory of the fullest parameter server; None: there are none.
        step_bytes: the traffic of the busiest computing task in a step.
        obstacle: why the strategy cannot train the job; empty: it can.
    """

    strategy: TrainingStrategy
    task_bytes: int
    server_bytes: int | None
    step_bytes: int
    obstacle: str

    def fits(self, limits: MemoryLimits) -> bool:
        """Return whether the strategy can train the job within the tasks' memory."""
        return not self.obstacle and (
            _is_within(self.task_bytes, limits.worker_bytes)
            and _is_within(self.server_bytes or 0, limits.server_bytes)
        )


@dataclass(frozen=True)
class Advice:
    """The advised strategy, None if none fits, and the reason in one sentence."""

    strategy: TrainingStrategy | None
    why: str


def sizes_of_strategies(sizes: JobSizes) -> list[StrategySizes]:
    """Return the memory and traffic of a job under each strategy, in the order of the report.

    Args:
        sizes: the sizes of the job.
    """
    return [
        StrategySizes(
            strategy,
            strategy.task_bytes(sizes),
            None if strategy.server_bytes is None else strategy.server_bytes(sizes),
            strategy.step_bytes(sizes),
            strategy.obstacle(sizes),
        )
        for strategy in STRATEGIES
    ]


def advise(
    sizes: JobSizes, *, limits: MemoryLimits | None = None, step_ms: float | None = None
) -> Advice:
    """Return the strategy to use, and why.

    It advises one process if the job fits into it and several workers would not take more steps,
    since it has no traffic; parameter servers if the job does not fit, or steps are long; local
    steps if an exchange takes longer than a step; else any strategy that fits.

    Args:
        sizes: the sizes of the job.
        limits: the memory of the tasks; None: unlimited.
        step_ms: the time of a step in one process; None: not known, treated as short.

    Example:

    >>> small = JobSizes(workers=2, servers=1, dense_bytes=400_000, gradient_bytes=400_000)
    >>> advise(small).strategy.title
    'one process'
    >>> advise(small, step_ms=50).strategy.title
    'tfps asynchronous, bounded'
    """
    allowed = MemoryLimits() if limits is None else limits
    candidates = sizes_of_strategies(sizes)
    fitting = {each.strategy: each for each in candidates if each.fits(allowed)}
    if not fitting:
        return Advice(None, _explain_nothing_fits(candidates))
    size_bytes = max(sizes.pulled_bytes, sizes.pushed_bytes)
    exchange_ms = push_ms(size_bytes)
    if ONE_PROCESS in fitting:
        if sizes.workers == 1:
            share = f"{SHARE_OF_ONE_PROCESS:.1f} of its steps"
            return Advice(
                ONE_PROCESS, f"it fits into a task; one worker with a server took {share}"
            )
        break_even_ms = pays_from_ms(workers=sizes.workers, size_bytes=size_bytes)
        if step_ms is None or step_ms <= break_even_ms:
            return Advice(
                ONE_PROCESS, _explain_one_process(sizes.workers, break_even_ms, exchange_ms)
            )
    is_short = step_ms is not None and step_ms < exchange_ms
    if is_short and LOCAL_STEPS in fitting:
        why = (
            f"an exchange takes {_ms_text(exchange_ms)}, longer than a step, and workers exchange "
            f"once in {sizes.period_steps}"
        )
        return Advice(LOCAL_STEPS, why)
    if ASYNCHRONOUS in fitting:
        is_needed = ONE_PROCESS not in fitting
        return Advice(ASYNCHRONOUS, _explain_servers(sizes, exchange_ms, is_needed=is_needed))
    if ALL_REDUCED in fitting:
        return Advice(ALL_REDUCED, _explain_all_reduced(fitting[ALL_REDUCED]))
    least = min(fitting.values(), key=lambda each: each.step_bytes)
    return Advice(least.strategy, _explain_only_choice(least))


def _is_within(size_bytes: int, limit_bytes: float | None) -> bool:
    return limit_bytes is None or size_bytes <= limit_bytes


def _ms_text(value: float) -> str:
    return format_seconds(value / 1e3)


def _explain_nothing_fits(candidates: Sequence[StrategySizes]) -> str:
    possible = [each for each in candidates if not each.obstacle]
    least = min(possible, key=lambda each: (each.task_bytes, each.strategy is not ASYNCHRONOUS))
    server = f" and {format_bytes(least.server_bytes)} in a server" if least.server_bytes else ""
    return (
        f"none fits; {least.strategy.title} needs least, {format_bytes(least.task_bytes)} in a "
        f"task{server}, of which a process with TensorFlow takes {format_bytes(PROCESS_BYTES)}: "
        "give tasks more memory, take more of them, or an optimizer with fewer slots"
    )


def _explain_one_process(workers: int, break_even_ms: float, exchange_ms: float) -> str:
    return (
        f"it fits into a task and moves nothing; {workers} workers are faster where a step "
        f"computes for more than {_ms_text(break_even_ms)}, as an exchange takes "
        f"{_ms_text(exchange_ms)}"
    )


def _explain_servers(sizes: JobSizes, exchange_ms: float, *, is_needed: bool) -> str:
    state = format_bytes(sizes.state_bytes)
    if is_needed and sizes.table_bytes:
        moved = format_bytes(sizes.exchange_bytes)
        return f"{state} of state are too much for a task; servers hold them, and {moved} move"
    if is_needed:
        return (
            f"{state} of state are too much for a task, and servers hold what the optimizer keeps"
        )
    return (
        f"a step is longer than an exchange of {_ms_text(exchange_ms)}, so {sizes.workers} workers "
        "take more steps than one process, and none waits for another"
    )


def _explain_all_reduced(chosen: StrategySizes) -> str:
    return (
        f"parameter servers have too little memory; workers hand {format_bytes(chosen.step_bytes)} "
        "on in a step, and the slowest sets the pace"
    )


def _explain_only_choice(chosen: StrategySizes) -> str:
    if chosen.strategy is ONE_PROCESS:
        return "the tasks of all others have too little memory"
    moved = format_bytes(chosen.step_bytes)
    return f"neither one process nor parameter servers fit; {moved} move in a step"
