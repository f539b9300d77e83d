"""The placement policy that a job file describes."""

from __future__ import annotations

from tfps.config.schema import PlacementSection
from tfps.placement.policy import ByPath, Placement, resolve


def placement_of(section: PlacementSection) -> Placement:
    """Return the policy of ``[placement]``.

    Raises:
        ConfigError: a rule is not a regular expression.
    """
    policy = resolve(section.policy)
    return ByPath(section.rules, otherwise=policy) if section.rules else policy
