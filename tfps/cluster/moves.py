"""Records in this process which tasks have moved to other addresses since the job started."""

from __future__ import annotations

from collections.abc import Mapping

from tfps.cluster.spec import ClusterSpec

Jobs = tuple[tuple[str, tuple[str, ...]], ...]

_current_jobs: dict[Jobs, ClusterSpec] = {}


def record_move(before: ClusterSpec, now: ClusterSpec) -> None:
    """Record the new addresses of a cluster.

    Example:

    >>> at_first = ClusterSpec(jobs={"chief": ("c:1",), "worker": ("w:1",), "ps": ("p:1",)})
    >>> record_move(at_first, at_first.with_address("ps", 0, "q:1"))
    >>> record_move(at_first.with_address("ps", 0, "q:1"), at_first.with_address("ps", 0, "r:1"))
    >>> get_current_cluster(at_first).address("ps", 0)
    'r:1'
    """
    was = _key(before.jobs)
    for known, spec in list(_current_jobs.items()):
        if _key(spec.jobs) == was:
            _current_jobs[known] = now
    _current_jobs[was] = now


def get_current_cluster(spec: ClusterSpec) -> ClusterSpec:
    """Return a cluster with its current addresses; the same object if no task has moved."""
    return _current_jobs.get(_key(spec.jobs), spec)


def _key(jobs: Mapping[str, tuple[str, ...]]) -> Jobs:
    return tuple(jobs.items())
