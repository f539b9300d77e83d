"""Serve as a worker or a parameter server until the chief reports the end of the job."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import FrameType

from tfps.cluster import (
    FINISHED_FUNCTION,
    ClusterSpec,
    accepts_connections,
    inter_op_threads,
    logical_cpus,
    prepare_process,
    timeout_from_environment,
)
from tfps.cluster.exit_status import TEMPORARY_STATUS
from tfps.cluster.listening import check_listening, is_elsewhere
from tfps.cluster.served_chief import INTRODUCE_FUNCTION, Question, ServedChief
from tfps.cluster.task_call import UnknownFunction, call_task
from tfps.cluster.timeout import CHIEF_TIMEOUT_S, DEFAULT_CHIEF_TIMEOUT_S
from tfps.errors import ConfigError
from tfps.launch.data_plane import start_data_plane
from tfps.launch.log_folder import TaskLog
from tfps.launch.noise import install_noise_filter
from tfps.launch.tensorflow_import import import_without_keras
from tfps.observe.usage import measure_usage
from tfps.package_versions import task_versions
from tfps.scheduler.client import find_scheduler, join_cluster, present_cluster
from tfps.stop_signals import SAVE_GRACE_S, STOP_SIGNALS
from tfps.terminal import write_message
from tfps.transport.tokens import LEAVE, USAGE

logger = logging.getLogger(__name__)

FAILED_STATUS = 1
# The meaning of the chief's status for a task, which ends with the same; others are failures.
END_REASONS = {
    0: "the job finished",
    TEMPORARY_STATUS: "the chief lost a task and resumes from a checkpoint after a restart",
}
POLL_INTERVAL_S = 5.0  # for the chief; a TCP connection each
REPLY_DELAY_S = 0.5  # so that the reply to the message is sent before the process ends


def serve(
    spec: ClusterSpec | None = None,
    *,
    chief_timeout_s: float | None = None,
    log_dir: str | None = None,
) -> int:
    """Serve as the task that `TF_CONFIG` names until the job ends; return the exit status.

    The status is 0 if the chief's script succeeded, 1 if it failed, and 75 if the chief was
    unreachable for too long, or ended with 75 itself because all should start again. A dropped
    connection ends nothing: the chief may return. TensorFlow cannot stop a server, so end the
    process when this returns (`os._exit`).

    Args:
        spec: the cluster and this task; None asks the scheduler if one is named, or reads
            `TF_CONFIG`.
        chief_timeout_s: the seconds that the chief may be unreachable; None reads
            `TFPS_CHIEF_TIMEOUT_S`, else 600 s.
        log_dir: the folder for the lines of libraries, if the error output is a terminal; None is a
            new temporary folder. Else the error output is the task's log.

    Raises:
        ConfigError: `TF_CONFIG` is invalid, or names a task that does not serve.
        ListenError: another process holds the task's port.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, partial(end_at_once, "this task"))
    if spec is None:
        join_cluster(roles=("worker", "ps"), program="tfps serve")
        spec = ClusterSpec.from_environment()
    if spec.task_type not in ("worker", "ps") or spec.task_index is None:
        raise ConfigError(
            f"task.type: received {spec.task_type!r}, expected worker or ps", source=spec.source
        )
    timeout_s = chief_timeout_s
    if timeout_s is None:
        timeout_s = timeout_from_environment(CHIEF_TIMEOUT_S, default_s=DEFAULT_CHIEF_TIMEOUT_S)
    address = spec.address(spec.task_type, spec.task_index)
    check_listening(spec, spec.task_type, spec.task_index)  # before TensorFlow takes seconds
    if is_elsewhere(address):
        logger.warning(
            "%s %d: %s is not an address of this machine. Check that this TF_CONFIG is not that of "
            "another task, or forward the address to this machine.",
            spec.task_type,
            spec.task_index,
            address,
        )
    prepare_process(spec.task_type, spec)
    name = f"{spec.task_type} {spec.task_index}"
    for number in STOP_SIGNALS:
        signal.signal(number, partial(end_at_once, name))
    if spec.task_type == "ps":
        signal.signal(signal.SIGTERM, partial(end_after_save, spec))
    log = TaskLog(spec, log_dir) if os.isatty(2) else None
    if log is not None:
        install_noise_filter(log.path)
    end = ServiceEnd()
    if (scheduler := find_scheduler(spec)) is not None:
        scheduler.on_end(end.record_status)  # of a chief that has not come to know this task
    start_server(spec, end)
    print(f"tfps: {name} serves at {address}", flush=True)
    status = end.wait(lambda: present_cluster(spec).address("chief", 0), chief_timeout_s=timeout_s)
    if scheduler is not None and end.is_told:
        with contextlib.suppress(OSError):  # else it has ended
            scheduler.send_end(status)  # it may have been away when the chief told it
    print(f"tfps: {name} ends with status {status}: {end.reason}", flush=True)
    if log is not None:
        log.end(status)
    return status


class ServiceEnd:
    """Waits until the chief reports the end of the job, or is unreachable for too long."""

    def __init__(self) -> None:
        self._received = threading.Event()
        self._status = FAILED_STATUS
        self.reason = ""

    def record_status(self, status: int) -> None:
        """Record the status that the chief reports; later reports are ignored."""
        if not self._received.is_set():
            known = status in END_REASONS
            self._status = status if known else FAILED_STATUS
            self.reason = END_REASONS[status] if known else "the chief's script failed"
            self._received.set()

    @property
    def is_told(self) -> bool:
        """Whether the status is one that the chief has reported."""
        return self._received.is_set()

    def wait(
        self,
        get_chief_address: Callable[[], str],
        *,
        chief_timeout_s: float,
        is_alive: Callable[[], bool] | None = None,
    ) -> int:
        """Wait for the end and return the exit status.

        Args:
            get_chief_address: returns the chief's present address; empty if it is not known.
            chief_timeout_s: the seconds that the chief may be unreachable.
            is_alive: returns whether the chief lives; None connects to its address.
        """
        is_alive = is_alive or (lambda: accepts_connections(get_chief_address()))
        seen = time.monotonic()
        every_s = min(POLL_INTERVAL_S, chief_timeout_s / 4)
        while not self._received.wait(every_s):
            now = time.monotonic()
            if math.isinf(chief_timeout_s) or is_alive():
                seen = now
            elif now - seen >= chief_timeout_s:
                address = get_chief_address()
                chief = f"the chief at {address}" if address else "the chief"
                self.reason = (
                    f"{chief} did not respond for {chief_timeout_s:g} s ({CHIEF_TIMEOUT_S})"
                )
                return TEMPORARY_STATUS
        time.sleep(REPLY_DELAY_S)
        return self._status


def start_server(spec: ClusterSpec, end: ServiceEnd) -> None:
    """Start the TensorFlow server of a task, which receives the chief's report of the end."""
    import_without_keras()
    import numpy as np
    import tensorflow as tf

    from tfps.bridge.functions.server_start import check_server_start
    from tfps.bridge.named_functions import register_named_function
    from tfps.bridge.parquet_rows import register_parquet

    def on_finished(status: np.ndarray) -> np.int32:
        end.record_status(int(status))
        return np.int32(1)

    served = ServedChief(functools.cache(task_versions))

    def on_introduction(question: np.ndarray) -> bytes:
        asked = Question.from_json(bytes(np.asarray(question).item()).decode())
        return served.reply_to(asked).to_json().encode()

    def on_usage() -> bytes:
        return measure_usage().to_json().encode()

    register_named_function(USAGE, on_usage)
    register_named_function(FINISHED_FUNCTION, on_finished)
    register_named_function(INTRODUCE_FUNCTION, on_introduction)
    register_parquet()
    assert spec.task_type is not None
    assert spec.task_index is not None
    # A ServerDef keeps the order of the jobs; from a ClusterSpec TensorFlow would sort them.
    definition = tf.train.ServerDef(
        job_name=spec.task_type, task_index=spec.task_index, protocol="grpc"
    )
    for name, addresses in spec.jobs.items():
        job = definition.cluster.job.add(name=name)
        for index, address in enumerate(addresses):
            job.tasks[index] = address
    config = definition.default_session_config
    config.inter_op_parallelism_threads = inter_op_threads(spec, spec.task_type)
    if spec.task_type == "worker":
        config.device_count["CPU"] = logical_cpus()
    # Spinning threads of every task on one machine take the cores from the tasks that compute.
    config.experimental.disable_thread_spinning = True
    target: Future[str] = Future()
    # First: to a chief, a task without it would be a plain TensorFlow server.
    start_data_plane(spec, target=target.result)
    with check_server_start(spec, spec.task_type, spec.task_index):
        target.set_result(tf.distribute.Server(definition).target)


def end_after_save(spec: ClusterSpec, number: int, frame: FrameType | None) -> None:
    """End this server, which got a signal, when its chief has saved what it holds.

    A second signal ends it at once, and so does a chief that cannot save.
    """
    name = f"{spec.task_type} {spec.task_index}"
    signal.signal(number, partial(end_at_once, name))
    write_message(f"{signal.Signals(number).name}: {name} ends when it is saved (repeat: at once)")

    def ask_and_end() -> None:
        import numpy as np
        import tensorflow as tf

        try:
            address = present_cluster(spec).address("chief", 0)
            if address and accepts_connections(address):
                chief, index = ("chief", 0, address), np.int64(spec.task_index or 0)
                call_task(chief, LEAVE, index, returns=np.int32(0), timeout_s=SAVE_GRACE_S)
        except (UnknownFunction, tf.errors.OpError) as error:
            write_message(f"the chief saves nothing: {error}")
        finally:  # whatever happens, a signal ends this task
            end_at_once(name, number, frame)

    threading.Thread(target=ask_and_end, daemon=True).start()


def end_at_once(name: str, number: int, _frame: FrameType | None) -> None:
    """End this process, which got a signal."""
    # Not by an exception: TensorFlow's threads would keep the process from ending.
    write_message(f"{signal.Signals(number).name}: {name} stops at once")
    sys.stdout.flush()
    os._exit(128 + number)
