"""Finds tasks that were started again at another address."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from tfps.cluster import ClusterSpec
from tfps.cluster.proxies import exclude_from_proxies
from tfps.errors import ConfigError
from tfps.recovery.probing.probe import Task
from tfps.recovery.probing.task_identity import ask_identities

logger = logging.getLogger(__name__)

# Not more often: the resolver may ask the API of a cluster's manager.
ASK_INTERVAL_S = 1.0


class NewAddresses:
    """Asks the scheduler or the cluster resolver where lost tasks are now, and probes them there.

    Args:
        resolve: returns the cluster as it is now, or None if tasks cannot move; may be the user's,
            and raise.
        cluster: returns the cluster as this job knows it.
        deadline_s: the seconds within which a task that is not busy replies.

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

    def find(self, lost: Collection[Task]) -> dict[Task, str]:
        """Return the new addresses at which lost tasks reply; asks once a second at most."""
        if not lost or time.monotonic() < self._next_request_s:
            return {}
        self._next_request_s = time.monotonic() + ASK_INTERVAL_S
        try:
            now = self._resolve()
            moved = {} if now is None else find_moved_tasks(self._cluster(), now, lost)
            exclude_from_proxies(moved.values())
            seen = ask_identities(moved, deadline_s=self._deadline_s) if moved else {}
            others = [
                f"{kind} {index} should be at {moved[kind, index]}, but {each.other} responds there"
                for (kind, index), each in seen.items()
                if each.other
            ]
            self.warn_once(f"{'; '.join(others)}. Correct the addresses." if others else "")
            moved = {task: moved[task] for task, each in seen.items() if each.process_incarnation}
            after = self._cluster()
            for task, address in moved.items():
                after = after.with_address(*task, address)  # which no other task has
        except ConfigError as error:
            self.warn_once(str(error))
            return {}
        except Exception as error:  # noqa: BLE001 - the user's resolver; is called again
            self.warn_once(f"cannot find the new addresses of lost tasks: {error!r}")
            return {}
        return moved

    def warn_once(self, problem: str) -> None:
        """Log a problem as a warning, unless it is the same as before."""
        if problem and problem != self.problem:
            logger.warning("still waiting for lost tasks: %s", problem)
        self.problem = problem


def find_moved_tasks(
    known: ClusterSpec, now: ClusterSpec, lost: Collection[Task]
) -> dict[Task, str]:
    """Return the addresses of lost tasks that have another address now. Pure.

    Args:
        known: the cluster as it was.
        now: the cluster as it is.
        lost: the tasks that do not reply.

    Raises:
        ConfigError: the number of tasks has changed.

    Example:

    >>> known = ClusterSpec(jobs={"chief": ("c:1",), "worker": ("w:1",), "ps": ("p:1", "q:1")})
    >>> find_moved_tasks(known, known.with_address("ps", 0, "r:1"), [("ps", 0), ("ps", 1)])
    {('ps', 0): 'r:1'}
    """
    for kind in sorted({kind for kind, _ in lost}):
        if now.count(kind) != known.count(kind):
            raise ConfigError(
                f"cluster.{kind}: received {now.count(kind)} addresses, expected "
                f"{known.count(kind)}; list all tasks of the job in the same order, including "
                "those that have not moved",
                source=now.source,
            )
    there = {task: now.address(*task) for task in sorted(lost)}
    return {task: address for task, address in there.items() if address != known.address(*task)}
