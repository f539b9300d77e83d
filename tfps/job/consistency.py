"""The consistency mode that a job file describes."""

from __future__ import annotations

from tfps.config.schema import ConsistencySection, JobConfig
from tfps.consistency.modes import Asynchronous, BoundedStaleness, Mode


def mode_of(section: ConsistencySection) -> Mode:
    """Return the mode of ``[consistency]``."""
    modes: dict[str, Mode] = {
        "asynchronous": Asynchronous(pipeline_steps=section.pipeline_steps),
        "bounded_staleness": BoundedStaleness(section.bound_steps),
    }
    return modes[section.mode]


def consistency_problems(config: JobConfig) -> list[str]:
    """Return a sentence for everything that the chosen mode cannot be combined with."""
    if config.consistency.mode == "asynchronous":
        return []
    problems = []
    if config.consistency.pipeline_steps:
        problems.append(
            "consistency.pipeline_steps: received 1 with bounded_staleness; expected 0: a worker "
            "that may have to wait sends nothing ahead"
        )
    if config.training.loop == "custom":
        problems.append(
            "training.loop: received 'custom' with consistency.mode = 'bounded_staleness'; "
            "expected 'fit': scheduled functions have no clock to compare workers by"
        )
    return problems
