"""What a strategy is asked for that a cluster of some size cannot do. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tfps.cluster.spec import TF_CONFIG, ClusterSpec
from tfps.consistency.mode import Mode
from tfps.consistency.synchronous import backup_problem
from tfps.placement.policy import Placement, server_problems


@dataclass(frozen=True)
class ClusterSize:
    """How many tasks of each kind there are.

    Args:
        workers: how many compute gradients.
        servers: how many keep parameters.
        source: who says so, where a reader would look for it elsewhere.
    """

    workers: int
    servers: int
    source: str = ""

    @classmethod
    def of(cls, spec: ClusterSpec) -> ClusterSize:
        """The size of a cluster."""
        source = TF_CONFIG if spec.source == TF_CONFIG else ""
        return cls(spec.count("worker"), spec.count("ps"), source)


def size_problems(
    *, mode: Mode | None, placement: Placement | None, size: ClusterSize
) -> list[str]:
    """Return a sentence for everything that so many tasks cannot do.

    A job file has the same keys as the arguments of a strategy, so the sentences are for both.

    Args:
        mode: when a server applies a gradient; None: not known.
        placement: which server takes a variable; None: not known.
        size: of the cluster.

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
