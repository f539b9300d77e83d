"""Finds parameter servers that were started again at another address."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from tfps.cluster import ClusterSpec
from tfps.errors import ConfigError
from tfps.recovery.probing.task_identity import ask_identities

logger = logging.getLogger(__name__)

# Not more often: the resolver may ask the API of a scheduler.
ASK_INTERVAL_S = 1.0


class NewAddresses:
    """Asks the cluster resolver for new addresses of lost servers, and probes them there.

    Args:
        resolve: returns the cluster as it is now, or None if servers cannot move; may be the
            user's, and raise.
        cluster: returns the cluster as this job knows it.
        deadline_s: the seconds within which a server that is not busy replies.

    Attributes:
        problem: what is wrong with the resolver's last reply; empty if nothing is.
    """

    def __init__(
        self,
        resolve: Callable[[], ClusterSpec | None],
        *,
        cluster: Callable[[], ClusterSpec],
        deadline_s: float,
    ) -> None:
        self._resolve, self._cluster, self._deadline_s = resolve, cluster, deadline_s
        self._next_request_s = 0.0
        self.problem = ""

    def find(self, lost: Collection[int]) -> dict[int, str]:
        """Return the new addresses at which lost servers reply; asks once a second at most."""
        if not lost or time.monotonic() < self._next_request_s:
            return {}
        self._next_request_s = time.monotonic() + ASK_INTERVAL_S
        try:
            now = self._resolve()
        except Exception as error:  # noqa: BLE001 - the user's resolver; is called again
            self.warn_once(f"cannot find the new addresses of lost servers: {error!r}")
            return {}
        try:
            moved = {} if now is None else find_moved_servers(self._cluster(), now, lost)
        except ConfigError as error:
            self.warn_once(str(error))
            return {}
        seen = ask_identities({("ps", i): a for i, a in moved.items()}, deadline_s=self._deadline_s)
        others = [
            f"ps {index} should be at {moved[index]}, but {each.other} responds there"
            for (_, index), each in seen.items()
            if each.other
        ]
        self.warn_once(
            f"{'; '.join(others)}. Correct TF_CONFIG or the cluster file." if others else "",
        )
        return {
            i: moved[i] for (_, i), each in seen.items() if each.process_incarnation is not None
        }

    def warn_once(self, problem: str) -> None:
        """Log a problem as a warning, unless it is the same as before."""
        if problem and problem != self.problem:
            logger.warning("still waiting for lost servers: %s", problem)
        self.problem = problem


def find_moved_servers(
    known: ClusterSpec, now: ClusterSpec, lost: Collection[int]
) -> dict[int, str]:
    """Return the addresses of lost servers that have another address now. Pure.

    Args:
        known: the cluster as it was.
        now: the cluster as it is.
        lost: the servers that do not reply.

    Raises:
        ConfigError: the number of servers has changed.

    Example:

    >>> known = ClusterSpec(jobs={"chief": ("c:1",), "worker": ("w:1",), "ps": ("p:1", "q:1")})
    >>> find_moved_servers(known, known.with_address("ps", 0, "r:1"), [0, 1])
    {0: 'r:1'}
    """
    received, expected = now.count("ps"), known.count("ps")
    if received != expected:
        raise ConfigError(
            f"cluster.ps: received {received} addresses, expected {expected}; list all parameter "
            "servers of the job in the same order, including those that have not moved",
            source=now.source,
        )
    return {
        index: now.address("ps", index)
        for index in sorted(lost)
        if now.address("ps", index) != known.address("ps", index)
    }
