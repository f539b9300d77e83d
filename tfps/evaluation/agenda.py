"""Select the next checkpoint to evaluate, without TensorFlow and without a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfps.evaluation.checkpoint import CheckpointFile

FIRST_PAUSE_S = 1.0  # between two attempts at an unchanged file; doubles each time
# Together they take a minute: an NFS client may show a file that is being written as unchanged for
# that long.
MAX_ATTEMPTS = 7


@dataclass
class _Failure:
    attempts: int
    retry_at_s: float


class Agenda:
    """Selects the newest checkpoint that has not been evaluated, and never an older one.

    As in tf_keras, of the checkpoints that appear during an evaluation only the newest is used, so
    that results are recent however slow the evaluation is. An unreadable checkpoint is tried again
    later, and whenever it has changed; meanwhile the next newest is used.

    Args:
        max_evaluations: the number of evaluations after which the agenda is complete. As in
            tf_keras it is also complete after a checkpoint with at least this number in its name
            (``ckpt-12`` of epoch 12). None for no limit.

    Attributes:
        evaluations: the number of checkpoints that were evaluated.

    Example:

    >>> from tfps.evaluation.checkpoint import File, checkpoints_among
    >>> files = [File(name=f"ckpt-{n}.weights.h5", changed_ns=n, size_bytes=1) for n in (1, 2)]
    >>> agenda = Agenda(max_evaluations=2)
    >>> checkpoint = agenda.next(checkpoints_among(files), now_s=0.0)
    >>> checkpoint.name
    'ckpt-2.weights.h5'
    >>> agenda.mark_evaluated(checkpoint)
    >>> agenda.is_complete
    True
    """

    def __init__(self, *, max_evaluations: int | None = None) -> None:
        self.evaluations = 0
        self._max_evaluations = max_evaluations
        self._last: CheckpointFile | None = None
        self._failures: dict[CheckpointFile, _Failure] = {}
        self._unreadable: set[CheckpointFile] = set()
        self._has_training_ended = False

    @property
    def is_complete(self) -> bool:
        """Whether `max_evaluations` is reached."""
        if self._max_evaluations is None or self._last is None:
            return False
        number = self._last.number
        return self.evaluations >= self._max_evaluations or (
            number is not None and number >= self._max_evaluations
        )

    def next(self, checkpoints: Sequence[CheckpointFile], *, now_s: float) -> CheckpointFile | None:
        """Return the checkpoint to evaluate now, or None.

        Args:
            checkpoints: the checkpoints in the folder, the newest first.
            now_s: the time of a monotonic clock.
        """
        present = set(checkpoints)
        self._failures = {c: f for c, f in self._failures.items() if c in present}
        self._unreadable &= present
        for checkpoint in checkpoints:
            if self._last is not None and checkpoint.recency <= self._last.recency:
                return None
            if checkpoint in self._unreadable:
                continue
            failure = self._failures.get(checkpoint)
            if failure is None or self._has_training_ended or now_s >= failure.retry_at_s:
                return checkpoint
        return None

    def mark_evaluated(self, checkpoint: CheckpointFile) -> None:
        """Record that a checkpoint was evaluated; older ones will be skipped."""
        self.evaluations += 1
        self._last = checkpoint

    def mark_failed(
        self, checkpoint: CheckpointFile, *, now_s: float, max_attempts: int = MAX_ATTEMPTS
    ) -> bool:
        """Record that a checkpoint could not be read; return whether no more attempt follows.

        Args:
            checkpoint: the checkpoint as it was found.
            now_s: the time of a monotonic clock.
            max_attempts: the number of attempts while the checkpoint does not change.
        """
        attempts = 1
        if checkpoint in self._failures:
            attempts += self._failures[checkpoint].attempts
        if attempts >= max_attempts or self._has_training_ended:
            self._unreadable.add(checkpoint)
            return True
        pause_s = FIRST_PAUSE_S * 2.0 ** (attempts - 1)
        self._failures[checkpoint] = _Failure(attempts, now_s + pause_s)
        return False

    def finish(self) -> None:
        """Record that training has ended, so that an unreadable checkpoint stays unreadable."""
        self._has_training_ended = True
