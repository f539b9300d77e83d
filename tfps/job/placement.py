"""The placement policy that a job file describes."""

from __future__ import annotations

from tfps.config.schema import PlacementSection
from tfps.errors import ConfigError
from tfps.placement.policy import ByPath, Placement, resolve


def placement_of(section: PlacementSection) -> Placement:
    """Return the policy of ``[placement]``.

    Raises:
        ConfigError: a rule is no regular expression.
    """
    policy = resolve(section.policy)
    return ByPath(section.rules, otherwise=policy) if section.rules else policy


def rule_problems(section: PlacementSection) -> list[str]:
    """Return a sentence for each rule that is no pattern."""
    try:
        placement_of(section)
    except ConfigError as error:
        return [f"placement.rules: {problem}" for problem in error.problems]
    return []
