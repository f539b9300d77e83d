"""Every exception of tfps, as subclasses of what users of TensorFlow and Python already catch.

Each message says what was received, what was expected and how to fix it. A lost server stays a
`tf.errors.UnavailableError`, a fenced-out worker a `tf.errors.AbortedError`, and a user's own
exception keeps its type: those are raised as they are and have no class here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class TfpsError(Exception):
    """The root of all errors of this package."""


class ConfigError(TfpsError, ValueError):
    """A configuration that cannot work: a job file, `TF_CONFIG`, or an argument of the strategy.

    Args:
        problems: one message, or all of them; every mistake is reported at once.
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
        found: dict[str, dict[str, None]] = {}
        for part in (part for error in errors for part in error.parts):
            found.setdefault(part.source, {}).update(dict.fromkeys(part.problems))
        parts = tuple(cls(tuple(problems), source=source) for source, problems in found.items())
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

    Example:

    >>> refuse([])
    """
    if problems:
        raise ConfigError(problems, source=source)


class ClusterError(TfpsError, RuntimeError):
    """A cluster that did not come up or did not stay up: a task missing, dead or unreachable."""


class ConnectTimeout(ClusterError, TimeoutError):
    """Some tasks of the cluster did not answer within ``connect_timeout_s``."""


class PortInUse(ClusterError, OSError):
    """This task cannot listen at its address, for example because another process does."""


class TasksInUse(ClusterError):
    """Tasks serve another chief, which is alive; nothing was changed on them."""


class TaskFailed(ClusterError):
    """A task's process ended with a status other than 0; carries its name, status, last lines."""


class StrategyClosed(ClusterError):
    """A strategy, or a model of it, was used after it was closed: by itself or with its cluster."""


class ChiefReplaced(ClusterError):
    """Another chief goes on with this one's job; the servers refuse what this one still asks."""


class BackendError(TfpsError, ImportError):
    """Keras runs on a backend other than TensorFlow."""


class DataError(TfpsError, ValueError):
    """Input data that is missing, corrupt or truncated, by name, found before anything starts."""


class CheckpointError(TfpsError, ValueError):
    """A checkpoint that does not fit the model, with the names of the weights."""


class CheckpointDamaged(CheckpointError):
    """A checkpoint whose files are not what was written: each file, what it was and what it is."""


class CheckpointNotSaved(TfpsError, OSError):
    """A checkpoint that could not be written: the disk is full, or the folder cannot be used."""


class UnsupportedError(TfpsError, NotImplementedError):
    """Something that the strategy refuses by name, with the reason and what to do instead."""


class ProtocolError(TfpsError, RuntimeError):
    """A message of another protocol version, job or plan reached a server."""
