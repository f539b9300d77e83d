"""How often a job file lets tasks be started again."""

from __future__ import annotations

from tfps.config.schema import RestartsSection
from tfps.recovery.restarts.restarts import Restarts


def restarts_of(section: RestartsSection) -> Restarts:
    """Return what ``[restarts]`` says; the schema has checked each value."""
    return Restarts(**section.model_dump())


def restarts_problems(section: RestartsSection, *, workers: int) -> list[str]:
    """Return a sentence for what cannot be with a cluster of so many workers."""
    return [f"restarts.{text}" for text in restarts_of(section).size_problems(workers=workers)]
