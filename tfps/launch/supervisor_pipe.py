"""Connect a chief and its parent process, which supervises the cluster's tasks."""

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
from tfps.launch.process_supervisor import ProcessSupervisor
from tfps.recovery.restarts.restart_policy import Task
from tfps.recovery.restarts.task_supervisor import register_supervisor

SUPERVISOR_PIPE = "TFPS_KEEPER_LINE"  # the number of the chief's end, which it inherits


class SupervisorPipe:
    """Connects a supervisor to a chief in a child process; this is the supervisor's end.

    Args:
        supervisor: the supervisor of the tasks.
    """

    def __init__(self, supervisor: ProcessSupervisor) -> None:
        self._supervisor = supervisor
        self._parent_end, self.chief_end = Pipe()
        self._restarts_sent = 0
        self._end_sent = False

    def exchange(self) -> None:
        """Read the chief's messages, and send the restarts and the end since the last call."""
        with contextlib.suppress(EOFError, OSError):  # the chief has ended
            while self._parent_end.poll():
                self._handle_message(json.loads(self._parent_end.recv_bytes()))
            for text in self._supervisor.restarts[self._restarts_sent :]:
                self._send_message(restart=text)
                self._restarts_sent += 1
            if self._supervisor.ended and not self._end_sent:
                end = self._supervisor.ended
                self._send_message(end=end.reason, is_noticed=end.is_noticed)
                self._end_sent = True

    def close(self) -> None:
        """Close the connection, and reset the requests of the chief, which has ended."""
        self._parent_end.close()
        self.chief_end.close()
        self._supervisor.set_server_restarts(lambda: False)
        self._supervisor.report_lost(())

    def _handle_message(self, message: dict[str, Any]) -> None:
        if "servers" in message:
            wanted = bool(message["servers"])
            self._supervisor.set_server_restarts(lambda: wanted)
        if "lost" in message:
            self._supervisor.report_lost((kind, index) for kind, index in message["lost"])

    def _send_message(self, **message: Any) -> None:
        self._parent_end.send_bytes(json.dumps(message).encode())


class RemoteSupervisor:
    """Represents, in a chief, the supervisor that runs in its parent process.

    Args:
        pipe: the connection to the supervisor.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.RLock()  # several threads look
        self._restarts: list[str] = []
        self._end, self._end_is_noticed = "", False
        self._wanted: Callable[[], bool] = lambda: False
        self._sent: dict[str, Any] = {"servers": False, "lost": []}

    @property
    def end_reason(self) -> str:
        """The reason why the job cannot go on, if its chief does not notice; else empty."""
        self._read_messages()
        return "" if self._end_is_noticed else self._end

    @property
    def give_up_reason(self) -> str:
        """The reason why a parameter server is not started again; empty while none is given up."""
        self._read_messages()
        return self._end if self._end_is_noticed else ""

    @property
    def restarts(self) -> list[str]:
        """The restarts so far, each as in ``worker 1 (SIGKILL)``."""
        self._read_messages()
        return self._restarts

    def set_server_restarts(self, wanted: Callable[[], bool]) -> None:
        """See `tfps.recovery.restarts.task_supervisor.TaskSupervisor`."""
        self._wanted = wanted
        self._read_messages()

    def report_lost(self, tasks: Iterable[Task]) -> None:
        """See `tfps.recovery.restarts.task_supervisor.TaskSupervisor`."""
        self._send_message(lost=[list(task) for task in sorted(tasks)])

    def _read_messages(self) -> None:
        # Errors: the supervisor has ended, and this process is about to.
        with self._lock, contextlib.suppress(EOFError, OSError):
            while self._pipe.poll():
                message = json.loads(self._pipe.recv_bytes())
                if "restart" in message:
                    self._restarts.append(message["restart"])
                if "end" in message:
                    self._end, self._end_is_noticed = message["end"], message["is_noticed"]
        self._send_message(servers=self._wanted())

    def _send_message(self, **message: Any) -> None:
        """Write a message if a value has changed."""
        with self._lock, contextlib.suppress(OSError):
            if any(self._sent[name] != value for name, value in message.items()):
                self._sent |= message
                self._pipe.send_bytes(json.dumps(message).encode())


def find_supervisor(spec: ClusterSpec) -> RemoteSupervisor | None:
    """Register this process's parent as the supervisor of the cluster's tasks, if it is one.

    Args:
        spec: the cluster.

    Returns:
        The supervisor, or None if the parent did not start the tasks.
    """
    number = os.environ.pop(SUPERVISOR_PIPE, "")
    if not number:
        return None
    os.set_inheritable(int(number), False)  # by what the script starts
    supervisor = RemoteSupervisor(Connection(int(number)))
    register_supervisor([address for _, _, address in spec.tasks("worker", "ps")], supervisor)
    return supervisor
