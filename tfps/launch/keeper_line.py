"""The connection between a chief and its parent, which keeps the cluster's tasks."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from tfps.cluster import ClusterSpec
from tfps.launch.keeper import Keeper
from tfps.recovery.restarts.kept_tasks import keep
from tfps.recovery.restarts.restart_policy import Task

KEEPER_LINE = "TFPS_KEEPER_LINE"  # the number of the chief's end, which it inherits


class KeeperLine:
    """The parent's end of the connection.

    Args:
        keeper: the keeper of the tasks.
    """

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._own, self.theirs = Pipe()
        self._restarts_sent = 0
        self._end_sent = False

    def exchange(self) -> None:
        """Read the chief's messages, and write the news since the last call."""
        with contextlib.suppress(EOFError, OSError):  # the chief has ended
            while self._own.poll():
                self._take(json.loads(self._own.recv_bytes()))
            for text in self._keeper.restarts[self._restarts_sent :]:
                self._tell(restart=text)
                self._restarts_sent += 1
            if self._keeper.ended and not self._end_sent:
                end = self._keeper.ended
                self._tell(end=end.reason, is_noticed=end.is_noticed)
                self._end_sent = True

    def close(self) -> None:
        """Close the connection, and reset the chief's requests: it has ended."""
        self._own.close()
        self.theirs.close()
        self._keeper.want_servers(lambda: False)
        self._keeper.note_lost(())

    def _take(self, message: dict[str, Any]) -> None:
        if "servers" in message:
            wanted = bool(message["servers"])
            self._keeper.want_servers(lambda: wanted)
        if "lost" in message:
            self._keeper.note_lost((kind, index) for kind, index in message["lost"])

    def _tell(self, **message: Any) -> None:
        self._own.send_bytes(json.dumps(message).encode())


class DistantKeeper:
    """The chief's end of the connection: the `KeptTasks` of a keeper in another process.

    Args:
        line: the connection to the keeper.
    """

    def __init__(self, line: Connection) -> None:
        self._line = line
        self._lock = threading.RLock()  # several threads look
        self._restarts: list[str] = []
        self._end, self._end_is_noticed = "", False
        self._wanted: Callable[[], bool] = lambda: False
        self._sent: dict[str, Any] = {"servers": False, "lost": []}

    @property
    def end_reason(self) -> str:
        """The reason why the job cannot go on, if its chief does not notice; else empty."""
        self._look()
        return "" if self._end_is_noticed else self._end

    @property
    def given_up(self) -> str:
        """The reason why a parameter server is not started again; empty while none is given up."""
        self._look()
        return self._end if self._end_is_noticed else ""

    @property
    def restarts(self) -> list[str]:
        """The restarts so far, each as in ``worker 1 (SIGKILL)``."""
        self._look()
        return self._restarts

    def want_servers(self, wanted: Callable[[], bool]) -> None:
        """See `tfps.recovery.restarts.kept_tasks.KeptTasks`."""
        self._wanted = wanted
        self._look()

    def note_lost(self, tasks: Iterable[Task]) -> None:
        """See `tfps.recovery.restarts.kept_tasks.KeptTasks`."""
        self._tell(lost=[list(task) for task in sorted(tasks)])

    def _look(self) -> None:
        # Errors: the keeper has ended, and this process is about to.
        with self._lock, contextlib.suppress(EOFError, OSError):
            while self._line.poll():
                message = json.loads(self._line.recv_bytes())
                if "restart" in message:
                    self._restarts.append(message["restart"])
                if "end" in message:
                    self._end, self._end_is_noticed = message["end"], message["is_noticed"]
        self._tell(servers=self._wanted())

    def _tell(self, **message: Any) -> None:
        """Write a message if a value has changed."""
        with self._lock, contextlib.suppress(OSError):
            if any(self._sent[name] != value for name, value in message.items()):
                self._sent |= message
                self._line.send_bytes(json.dumps(message).encode())


def find_keeper(spec: ClusterSpec) -> DistantKeeper | None:
    """Register the parent of this process as the keeper of the cluster's tasks, if it is.

    Args:
        spec: the cluster.

    Returns:
        The keeper, or None if the parent did not start the tasks.
    """
    number = os.environ.pop(KEEPER_LINE, "")
    if not number:
        return None
    os.set_inheritable(int(number), False)  # by what the script starts
    keeper = DistantKeeper(Connection(int(number)))
    keep([address for _, _, address in spec.tasks("worker", "ps")], keeper)
    return keeper
