"""Checks that a strategy's arguments fit the size of its cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tfps.cluster.spec import TF_CONFIG, ClusterSpec
from tfps.consistency.mode import Mode
from tfps.consistency.synchronous import backup_problem
from tfps.placement.policy import Placement, server_problems


@dataclass(frozen=True)
class ClusterSize:
    """The number of tasks of each kind.

    Args:
        workers: the number of workers.
        servers: the number of parameter servers.
        source: the origin of these numbers, for messages; empty if it is obvious.
    """

    workers: int
    servers: int
    source: str = ""

    @classmethod
    def from_spec(cls, spec: ClusterSpec) -> ClusterSize:
        """Return the size of a cluster."""
        source = TF_CONFIG if spec.source == TF_CONFIG else ""
        return cls(spec.count("worker"), spec.count("ps"), source)


def size_problems(
    *, mode: Mode | None, placement: Placement | None, size: ClusterSize
) -> list[str]:
    """Return a sentence for each argument that does not fit a cluster of this size.

    The sentences name keys that strategies and job files have in common.

    Args:
        mode: the consistency mode; None: not known.
        placement: the placement policy; None: not known.
        size: the size of the cluster.

    Example:

    >>> from tfps.placement.policy import ByPath
    >>> size_problems(mode=None, placement=ByPath({"conv": 1}), size=ClusterSize(2, servers=1))
    ["placement.rules: received server 1 for 'conv' with 1 parameter servers; expected 0 to 0"]
    """
    problems = []
    if mode is not None:
        problem = backup_problem(mode.backup_workers, workers=size.workers, source=size.source)
        problems += [f"consistency.backup_workers: {problem}"] if problem else []
    if placement is not None:
        found = server_problems(placement, servers=size.servers, source=size.source)
        problems += [f"placement.rules: {problem}" for problem in found]
    return problems
