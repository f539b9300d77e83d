"""The placement policy that a job file describes."""

from __future__ import annotations

from tfps.config.schema import PlacementSection
from tfps.errors import ConfigError
from tfps.placement.policy import ByRule, Placement, resolve, server_problems


def placement_of(section: PlacementSection) -> Placement:
    """Return the policy of ``[placement]``.

    Raises:
        ConfigError: a rule is no regular expression.
    """
    policy = resolve(section.policy)
    return ByRule(section.rules, otherwise=policy) if section.rules else policy


def placement_problems(section: PlacementSection, *, servers: int | None = None) -> list[str]:
    """Return a sentence for each rule that cannot be followed.

    Args:
        section: of the job.
        servers: how many the cluster has; None: not known yet.
    """
    try:
        placement = placement_of(section)
    except ConfigError as error:
        return [f"placement.rules: {problem}" for problem in error.problems]
    return [] if servers is None else server_problems(placement, servers=servers)
