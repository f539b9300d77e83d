"""Bring the newest weights that workers train by all-reduce home, if no worker has done so."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tfps.bridge.variables.worker_local_variable import WorkerLocalTensor, WorkerLocalVariable
from tfps.checkpoint.commit import Folder
from tfps.errors import CheckpointError
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.program.schedule import MirroredTraining
from tfps.runtime.server.fit_half import FitHalf
from tfps.runtime.worker.mirrored_copies import TORN, UPDATES_NAME

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
            raise error from cause
