"""`tfps.SidecarEvaluator`: evaluates a training job's checkpoints in a separate process."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from tfps.errors import CheckpointError, refuse
from tfps.evaluation.agenda import Agenda
from tfps.evaluation.checkpoint import CheckpointFile, Format, UnreadableCheckpoint
from tfps.evaluation.checkpoint_folder import CheckpointFolder
from tfps.evaluation.evaluation_callbacks import EvaluationCallbacks
from tfps.evaluation.iterations import set_iterations
from tfps.evaluation.job_end import end_of_this_job
from tfps.evaluation.keras_file import load_keras_file
from tfps.evaluation.tensorflow_checkpoint import load_tensorflow_checkpoint

logger = logging.getLogger(__name__)

# The values of `x` of `model.evaluate` that can be used again for each checkpoint: no generators.
Data: TypeAlias = (
    tf.data.Dataset
    | keras.utils.PyDataset
    | np.ndarray[Any, Any]
    | tf.Tensor
    | Sequence[Any]
    | Mapping[str, Any]
)
POLL_INTERVAL_S = 1.0  # between looks into the folder, as in tf.train.checkpoints_iterator
NOTICE_PAUSE_S = 30.0  # without a checkpoint
# A checkpoint of another model stays one; the second attempt is for a file that was half written.
MAX_ATTEMPTS_OF_OTHERS = 2


class SidecarEvaluator:
    """Evaluates the checkpoints that a training job writes, while the training continues.

    Replaces `tf_keras.utils.SidecarEvaluator`, which Keras 3 does not have. Run it in the task
    ``evaluator`` of `TF_CONFIG`, or in any process that can read the checkpoints. It reads
    checkpoints of `tf.train.Checkpoint` and of Keras's `ModelCheckpoint` (``.weights.h5``,
    ``.keras``), sets the optimizer's iterations, and calls `evaluate` on this machine, without a
    strategy.

    As in tf_keras the newest checkpoint is evaluated next, so some are skipped if evaluation is
    slower than training. None is evaluated twice. It ends after `max_evaluations`; in the task
    ``evaluator`` also when the job has ended and the last checkpoint is evaluated; otherwise with
    Ctrl-C.

    Source: tf_keras, ``utils/sidecar_evaluator.py``.

    Args:
        model: a model that is compiled as in the training, created outside of a strategy's scope.
        data: the argument `x` of `model.evaluate`: a `tf.data.Dataset`, a `PyDataset`, arrays.
        checkpoint_dir: the folder of the checkpoints; the training may create it later.
        steps: the number of batches of an evaluation; None for all.
        max_evaluations: the number of evaluations after which it ends. It also ends after a
            checkpoint whose name ends with ``-N`` where N is at least this. None for no limit.
        callbacks: `keras.callbacks.Callback`s. The logs of `on_test_begin` are ``checkpoint`` (its
            path), ``number`` (the one at the end of its name, or None) and ``iterations``; those of
            `on_test_end` are the metrics. `TensorBoard` plots them over the iterations.

    Raises:
        ConfigError: lists every invalid argument.

    Example:

    >>> import numpy as np
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save("checkpoints/ckpt")
    >>> data = tf.data.Dataset.from_tensors((np.ones([2, 3]), np.ones([2, 1])))
    >>> evaluator = SidecarEvaluator(model, data, "checkpoints", max_evaluations=1)
    >>> evaluator.start()  # doctest: +ELLIPSIS
    evaluation: ...
    evaluation: 1 checkpoint evaluated: reached max_evaluations=1
    """

    def __init__(  # noqa: PLR0917 - the signature is tf_keras's
        self,
        model: keras.Model,
        data: Data,
        checkpoint_dir: str | os.PathLike[str],
        steps: int | None = None,
        max_evaluations: int | None = None,
        callbacks: Sequence[keras.callbacks.Callback] | None = None,
    ) -> None:
        problems = [
            *_model_problems(model),
            *_count_problems("steps", steps),
            *_count_problems("max_evaluations", max_evaluations),
        ]
        refuse(problems, source="SidecarEvaluator")
        self.model = model
        self.data = data
        self.checkpoint_dir = checkpoint_dir
        self.steps = steps
        self.max_evaluations = max_evaluations
        self.callbacks = list(callbacks or [])
        self._folder = CheckpointFolder(checkpoint_dir)

    def start(self) -> None:
        """Evaluate checkpoints as they appear, until ``max_evaluations`` or the end of the job.

        Raises:
            CheckpointError: a checkpoint is of another model.
            ConfigError: `TF_CONFIG` is invalid.
        """
        agenda = Agenda(max_evaluations=self.max_evaluations)
        callbacks = EvaluationCallbacks(self.callbacks, self.model)
        end = end_of_this_job()
        notice_at_s = time.monotonic() + NOTICE_PAUSE_S
        while not agenda.is_complete:
            # In this order, so that checkpoints written just before the end are found.
            reason = end.end_reason()
            if reason is not None:
                agenda.finish()
            checkpoint = agenda.next(self._folder.checkpoints(), now_s=time.monotonic())
            if checkpoint is not None:
                if self._evaluate(checkpoint, agenda, callbacks):
                    end.record_checkpoint()
            elif reason is not None:
                _print_line(f"{_count_text(agenda.evaluations)}: {reason}")
                return
            else:
                if agenda.evaluations == 0 and time.monotonic() >= notice_at_s:
                    notice_at_s = float("inf")
                    logger.warning(
                        "no checkpoint yet: %s; waiting", self._folder.describe_contents()
                    )
                time.sleep(POLL_INTERVAL_S)
        _print_line(
            f"{_count_text(agenda.evaluations)}: reached max_evaluations={self.max_evaluations}"
        )

    def _evaluate(
        self, checkpoint: CheckpointFile, agenda: Agenda, callbacks: EvaluationCallbacks
    ) -> bool:
        """Load and evaluate a checkpoint; return whether it could be read."""
        path = self._folder.path_of(checkpoint)
        try:
            count = self._load(checkpoint)
        except UnreadableCheckpoint as error:
            if agenda.mark_failed(checkpoint, now_s=time.monotonic()) and self._folder.is_unchanged(
                checkpoint
            ):
                logger.warning("skipped %s: cannot read it: %s", path, error)
            return False
        except CheckpointError:
            if agenda.mark_failed(
                checkpoint, now_s=time.monotonic(), max_attempts=MAX_ATTEMPTS_OF_OTHERS
            ) and self._folder.is_unchanged(checkpoint):
                raise
            return False
        if count is None:
            count = agenda.evaluations + 1 if checkpoint.number is None else checkpoint.number
        iterations = set_iterations(self.model, count)
        callbacks.announce(checkpoint=path, number=checkpoint.number, iterations=iterations)
        started = time.monotonic()
        logs = self.model.evaluate(
            self.data, steps=self.steps, callbacks=callbacks, verbose=0, return_dict=True
        )
        agenda.mark_evaluated(checkpoint)
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in sorted(_scalar_logs(logs)))
        seconds = time.monotonic() - started
        _print_line(f"{checkpoint.name}, iteration {iterations}: {metrics} ({seconds:.1f} s)")
        return True

    def _load(self, checkpoint: CheckpointFile) -> int | None:
        """Load the weights of one state of a checkpoint; return the optimizer's counter."""
        if not self.model.built or not self.model.weights:
            # Loading needs the weights of all layers, which the first batch creates.
            self.model.evaluate(self.data, steps=1, verbose=0)
        path = self._folder.path_of(checkpoint)
        if checkpoint.format is Format.TENSORFLOW:
            count = load_tensorflow_checkpoint(path, self.model)
        else:
            count = load_keras_file(path, self.model, format=checkpoint.format)
        if self._folder.has_replaced(checkpoint):
            raise UnreadableCheckpoint("it changed during the read")
        return count


def _model_problems(model: Any) -> list[str]:
    if not isinstance(model, keras.Model):
        return [f"model: received a {type(model).__name__}, expected a keras.Model of Keras 3"]
    problems = []
    if not model.compiled:
        problems.append(
            f"model: received {model.name}, which is not compiled; call compile() with the "
            "optimizer of the training, the loss and the metrics"
        )
    strategy = getattr(model, "_distribute_strategy", None)
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        problems.append(
            f"model: received {model.name}, made in the scope of a {type(strategy).__name__}; make "
            "the model of an evaluator outside of strategy.scope()"
        )
    return problems


def _count_problems(name: str, value: Any) -> list[str]:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return []
    return [f"{name}: received {value!r}, expected None or an integer of at least 1"]


def _scalar_logs(logs: dict[str, Any]) -> list[tuple[str, float]]:
    return [(name, value) for name, value in logs.items() if isinstance(value, float)]


def _count_text(evaluations: int) -> str:
    return f"{evaluations} checkpoint{'' if evaluations == 1 else 's'} evaluated"


def _print_line(line: str) -> None:
    print(f"evaluation: {line}", flush=True)
