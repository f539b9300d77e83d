"""Every exception of tfps, as subclasses of what users of TensorFlow and Python already catch.

Each message says what was received, what was expected and how to fix it. A lost server stays a
`tf.errors.UnavailableError`, a fenced-out worker a `tf.errors.AbortedError`, and a user's own
exception keeps its type: those are raised as they are and have no class here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class TfpsError(Exception):
    """The base class of all errors of this package; catch it to handle any of them.

    Example:

    >>> import tfps
    >>> try:
    ...     tfps.LocalSteps(period_steps=0)
    ... except TfpsError as error:
    ...     print(type(error).__name__)
    ConfigError
    """


class ConfigError(TfpsError, ValueError):
    """A configuration that cannot work: a job file, `TF_CONFIG`, or an argument of the strategy.

    Args:
        problems: one message, or all of them; all mistakes are reported together.
        source: what was read, for example a file's name or ``TF_CONFIG``.

    Example:

    >>> print(ConfigError(["a: missing", "b: unknown key"], source="job.toml"))
    job.toml has 2 mistakes:
      - a: missing
      - b: unknown key
    """

    def __init__(self, problems: str | Sequence[str], *, source: str = "") -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        self.source = source
        self.parts: tuple[ConfigError, ...] = (self,)
        super().__init__(self._message())

    @classmethod
    def joined(cls, errors: Iterable[ConfigError]) -> ConfigError:
        """Return one error for the mistakes of several sources, each with its source's name.

        Args:
            errors: one error at least; the same mistake of one source is named once.

        Example:

        >>> errors = [ConfigError("a: missing", source="job.toml"), ConfigError("b: unknown key")]
        >>> print(ConfigError.joined(errors))
        job.toml: a: missing
        b: unknown key
        """
        by_source: dict[str, dict[str, None]] = {}
        for part in (part for error in errors for part in error.parts):
            by_source.setdefault(part.source, {}).update(dict.fromkeys(part.problems))
        parts = tuple(cls(tuple(problems), source=source) for source, problems in by_source.items())
        if len(parts) == 1:
            return parts[0]
        whole = cls([problem for part in parts for problem in part.problems])
        whole.parts, whole.args = parts, ("\n".join(map(str, parts)),)
        return whole

    def _message(self) -> str:
        prefix = f"{self.source}: " if self.source else ""
        if len(self.problems) == 1:
            return prefix + self.problems[0]
        count = f"{len(self.problems)} mistakes:"
        head = f"{self.source} has {count}" if self.source else count
        return "\n".join([head, *(f"  - {problem}" for problem in self.problems)])


def refuse(problems: Sequence[str], *, source: str = "") -> None:
    """Raise a `ConfigError` that names some problems, if there are any.

    Args:
        problems: a sentence for each problem.
        source: what was read, for example a file's name or ``TF_CONFIG``.

    Raises:
        ConfigError: there are problems.

    Example:

    >>> refuse([])
    """
    if problems:
        raise ConfigError(problems, source=source)


class ClusterError(TfpsError, RuntimeError):
    """A cluster that did not come up or did not stay up: a task missing, dead or unreachable.

    It is the base class of errors of tasks. Catch it to start a cluster again.
    """


class ConnectTimeout(ClusterError, TimeoutError):
    """Some tasks of the cluster did not reply within ``connect_timeout_s`` seconds.

    Raised when a strategy, a `tfps.LocalCluster` or `tfps.attach` connects. The message names the
    tasks and their addresses. It is also a `TimeoutError`.
    """


class ListenError(ClusterError, OSError):
    """This task cannot listen at its address, for example because another process does.

    Raised by a task that starts, chief or server; the message has the address of its entry in
    ``TF_CONFIG``. It is also an `OSError`.
    """


class TasksInUse(ClusterError):
    """Tasks serve another chief, which is alive; nothing was changed on them.

    Raised when a strategy connects. End the other chief first, or give this job other tasks.
    """


class TaskFailed(ClusterError):
    """A task's process ended unexpectedly; the message has its name, status and last lines.

    Raised by `tfps.LocalCluster` when a task ends while it starts.
    """


class StrategyClosed(ClusterError):
    """A strategy, or a model of it, was used after `close` of the strategy or of its cluster.

    Predict, save and read weights before; to train again, make another strategy. A closed
    `tfps.Attachment`, or one whose job has ended, raises it as well.
    """


class ChiefReplaced(ClusterError):
    """Another chief has taken over this chief's job; the servers refuse this one's requests.

    Raised in the older chief of a named job (`tfps.Job`). Let its script end.
    """


class BackendError(TfpsError, ImportError):
    """Keras runs on a backend other than TensorFlow; set ``KERAS_BACKEND=tensorflow``.

    It is raised as well if no TensorFlow is installed, which the extra ``tfps[tensorflow]`` brings.
    """


class DataError(TfpsError, ValueError):
    """Input data that is missing, corrupt or truncated, found before the training starts.

    The message names the file, or the setting that leaves no data. It is also a `ValueError`.
    """


class CheckpointError(TfpsError, ValueError):
    """A checkpoint that does not fit the model; the message has the names of the weights.

    Raised when a checkpoint is restored, or when there is none with that number.
    """


class CheckpointDamaged(CheckpointError):
    """A checkpoint whose files have changed since they were written; the message names them.

    `tfps.CheckpointManager.restore_latest` skips such checkpoints, unless all are damaged.
    """


class CheckpointNotSaved(TfpsError, OSError):
    """A checkpoint that could not be written: the disk is full, or the folder cannot be used.

    Raised by `tfps.CheckpointManager.save` and `tfps.CheckpointManager.wait`; older checkpoints
    stay as they are. It is also an `OSError`.
    """


class UnsupportedError(TfpsError, NotImplementedError):
    """A feature or combination that tfps does not support; the message says what to do instead.

    It is also a `NotImplementedError`.
    """


class ProtocolError(TfpsError, RuntimeError):
    """A message of another protocol version, job or plan reached a server.

    It shows that tasks run different versions of tfps, or that two jobs use the same servers.
    """
