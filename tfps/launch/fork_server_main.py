"""`python -m tfps.launch.fork_server_main FILE_NUMBER`: imports TensorFlow and forks tasks.

`tfps.launch.fork_server` starts it, and sends requests over the connection that it inherits under
that file number.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Mapping
from multiprocessing.connection import Connection, wait
from typing import Any

from tfps.cluster import prepare_process
from tfps.errors import ClusterError, ConfigError
from tfps.launch.environment import PARENT_PID, TASK_NAME
from tfps.launch.parent import end_with_parent
from tfps.launch.serving import serve
from tfps.launch.tensorflow_import import import_without_keras

PR_SET_NAME = 15  # from <linux/prctl.h>; keeps 15 bytes
SERVER_NAME = "fork server"  # tasks, which have its command line, show names of their own


def main(file_number: int) -> None:
    """Import TensorFlow, then start and reap tasks until the other end closes the connection."""
    end_with_parent(watch=False)  # without its thread: a process that forks has one only
    _set_process_name(SERVER_NAME)
    prepare_process("worker")
    # Modules that a task would otherwise import when it starts to serve; none starts a thread.
    import_without_keras()
    import tfps.transport.data_server
    import tfps.transport.links  # noqa: F401

    gc.collect()
    gc.freeze()  # a collection in a task would copy every page of what all of them share
    connection = Connection(file_number)
    ends, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # it need only wake the wait below
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    running: dict[int, int] = {}  # process -> the request that started it
    while True:
        if ends in wait([connection, ends]):
            os.read(ends, 4096)
        try:
            _handle_requests(connection, running)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # the tasks end with this process
        for pid, request in [*running.items()]:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del running[pid]
                _send_message(connection, id=request, status=os.waitstatus_to_exitcode(status))


def _handle_requests(connection: Connection, running: dict[int, int]) -> None:
    """Handle the pending requests; a start that is cancelled among them is skipped."""
    requests = []
    while connection.poll():
        requests.append(json.loads(connection.recv_bytes()))
    cancelled = {request["cancel"] for request in requests if "cancel" in request}
    for request in requests:
        if "cancel" in request:
            for pid in (pid for pid, number in running.items() if number == request["cancel"]):
                os.killpg(pid, signal.SIGKILL)
        elif request["id"] not in cancelled:
            with warnings.catch_warnings():
                # Python counts the threads of NumPy's OpenBLAS, which a fork makes anew.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if pid == 0:
                _run_task(request, connection)
            # Parent and child both do this, so that the child has its own group in any order.
            _make_group_leader(pid)
            running[pid] = request["id"]
            _send_message(connection, id=request["id"], pid=pid)


def _send_message(connection: Connection, **message: int) -> None:
    connection.send_bytes(json.dumps(message).encode())


def _make_group_leader(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.setpgid(pid, pid)


def _run_task(request: Mapping[str, Any], connection: Connection) -> None:
    """Turn this fork into the task, and run it; never returns."""
    status = 1
    try:
        _make_group_leader(0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        connection.close()
        log = os.open(request["log_path"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        for standard in (1, 2):
            os.dup2(log, standard)
        os.chdir(request["folder"])
        for name, value in request["environment"].items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        os.environ[PARENT_PID] = str(os.getppid())
        _set_process_name(os.environ[TASK_NAME])
        _draw_new_seeds()
        sys.argv = ["tfps", "serve"]
        end_with_parent()
        status = serve()
    except (ConfigError, ClusterError) as error:
        print(f"Error: {error}", file=sys.stderr)
    except BaseException:  # noqa: BLE001 - as the interpreter does at the end of a program
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _set_process_name(name: str) -> None:
    """Set the name that `top` and ``ps -e`` show for this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())


def _draw_new_seeds() -> None:
    """Give NumPy's global generator a new seed after a fork, as Python does for its own."""
    import numpy as np

    np.random.seed()


if __name__ == "__main__":
    main(int(sys.argv[1]))
