"""The copies of weights that workers train by all-reduce: whether they fit, and their way home."""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge.variables.worker_local_variable import WorkerLocalTensor, WorkerLocalVariable
from tfps.checkpoint.commit import Folder
from tfps.errors import CheckpointError, UnsupportedError
from tfps.runtime.coordinator.connections import ControlChannel
from tfps.runtime.coordinator.control_plane import NoSuchFunction
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.program.mirroring import BY_SERVERS
from tfps.runtime.program.schedule import MirroredTraining
from tfps.runtime.server.fit_half import FitHalf
from tfps.runtime.worker.mirrored_copies import TORN, UPDATES_NAME
from tfps.transport.tokens import USAGE
from tfps.units import format_bytes

logger = logging.getLogger(__name__)

PATIENCE_S = 3.0  # a worker that does not reply has no copies that could be read
LOST = (
    "the newest values of the weights that workers train by all-reduce were on workers, which were "
    "all lost: expected at least one that lives. "
)
NEWEST = "Restore checkpoint %d, the newest one in %s, with tfps.CheckpointManager, and train on"
NO_CHECKPOINT = (
    "There is no checkpoint: train from the beginning, and save some with tfps.callbacks.Checkpoint"
)


def check_copies(mirrored: MirroredTraining, channels: Iterable[ControlChannel]) -> None:
    """Check that the memory of each worker can hold the copies of weights and slots, and a sum.

    Args:
        mirrored: the weights.
        channels: a connection with each worker.

    Raises:
        UnsupportedError: a worker has less memory than they need.
    """

    def count_bytes(variable: Any) -> int:
        return math.prod(variable.shape) * tf.as_dtype(variable.dtype).size

    # Weights, a sum of gradients, and slots.
    needed_bytes = sum(map(count_bytes, (*mirrored.weights, *mirrored.weights, *mirrored.slots)))
    for worker, channel in enumerate(channels):
        try:
            has_bytes = json.loads(bytes(channel.ask(USAGE)))["memory_limit_bytes"]
        except (NoSuchFunction, tf.errors.UnavailableError):
            continue  # a part of this process, or a worker that was lost just now
        if needed_bytes > has_bytes:
            largest = max(mirrored.weights, key=count_bytes).path
            raise UnsupportedError(
                f"placement: received AllReduce() for copies of {format_bytes(needed_bytes)}, with "
                f"slots and gradients, expected no more than the {format_bytes(has_bytes)} of "
                f"memory of worker {worker}; {BY_SERVERS.format(path=largest)}"
            )


def make_lost_error(folder: Path | None) -> CheckpointError:
    """Create the error of a run whose newest weights are lost.

    Args:
        folder: the folder of the job's newest `CheckpointManager`; None: it has none.
    """
    numbers = [] if folder is None else Folder(folder).numbers()
    return CheckpointError(LOST + (NEWEST % (numbers[-1], folder) if numbers else NO_CHECKPOINT))


def bring_home(
    mirrored: MirroredTraining,
    *,
    runtime: Runtime,
    halves: Sequence[FitHalf],
    cause: BaseException | None,
) -> None:
    """Write copies that are newer than the values of the servers to these, from any worker.

    Workers do so themselves, unless an error has ended their run.

    Args:
        mirrored: the weights.
        runtime: the job.
        halves: the functions of the program on each server.
        cause: the error that has ended the run; None: none has.

    Raises:
        CheckpointError: no worker has them, and no error of the user's has ended the run.
    """
    server = runtime.ticket_server
    (cells, *others), layout = runtime.cells(), server.layout
    newest, behind = int(cells[layout.REDUCED]), int(cells[layout.REDUCED] - cells[layout.HOME])
    for half, known in zip(halves[1:], others, strict=True):
        if known[layout.REDUCED] != newest:
            half.count_updates(newest)
    container, variables = runtime.container, (*mirrored.weights, *mirrored.slots)

    def read_all() -> list[tf.Tensor]:
        updates = WorkerLocalTensor(UPDATES_NAME, container=container, shape=[], dtype=tf.int64)
        copies = [WorkerLocalVariable(v, container=container) for v in variables]
        return [each.read_value() for each in (updates, *copies)]

    for channel in runtime.worker_channels if behind else []:
        found = [np.array(TORN)]
        with contextlib.suppress(tf.errors.OpError):  # it is lost, or new and has no copies
            found = channel.make_function(read_all, arguments=0)(patience_s=PATIENCE_S)
        # First the number: an assignment waits until the weights are home.
        if found[0] == newest and server.come_home(newest):
            for variable, value in zip(variables, found[1:], strict=True):
                variable._value.assign(value)
            return
    if behind:
        error = make_lost_error(runtime.checkpoint_folder)
        logger.warning("%d updates are lost: %s", behind, error)
        if cause is None or isinstance(cause, tf.errors.UnavailableError):
            error.add_note(f"The run has ended by: {cause}")  # Keras removes the cause
            raise error from cause
