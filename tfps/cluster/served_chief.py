"""Which chief a task serves: the first one that asks, until it leaves or is gone. Pure."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

INTRODUCE_FUNCTION = "tfps_introduce"  # (question) -> answer; of every worker and server of tfps


@dataclass(frozen=True)
class ChiefName:
    """A chief, as a task remembers it.

    Args:
        process: drawn once by each process.
        address: where others find it; empty where it is not known yet.
        job: its name; empty for a job without one.
        is_ready: its own server listens; until then it is starting.
    """

    process: str
    address: str = ""
    job: str = ""
    is_ready: bool = False

    def __str__(self) -> str:
        """For messages.

        Example:

        >>> str(ChiefName("a1", "c:1", "night")), str(ChiefName("a1"))
        ('job night of the chief at c:1', 'a job of a chief that is starting')
        """
        job = f"job {self.job}" if self.job else "a job"
        return f"{job} of {f'the chief at {self.address}' if self.address else STARTING}"


STARTING = "a chief that is starting"


@dataclass(frozen=True)
class Question:
    """A chief's question to a task.

    Args:
        chief: the one that asks.
        takes: whether the task shall serve this chief from now on.
        leaves: whether the task shall serve this chief no more.
        replaces: the process of a chief that is gone and may have the task still.
    """

    chief: ChiefName
    takes: bool = False
    leaves: bool = False
    replaces: str = ""

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Question:
        """From text."""
        fields = json.loads(text)
        return cls(**{**fields, "chief": ChiefName(**fields["chief"])})


@dataclass(frozen=True)
class Introduction:
    """A task's answer to a chief.

    Args:
        serves: the chief that it serves, after the question; None: no chief.
        since_s: for how many seconds, or since its chief was ready.
        versions: of packages, in the task's process.
    """

    serves: ChiefName | None = None
    since_s: float = 0.0
    versions: Mapping[str, str | None] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Introduction:
        """From text."""
        fields = json.loads(text)
        serves = fields["serves"]
        return cls(**{**fields, "serves": serves and ChiefName(**serves)})


class ServedChief:
    """The chief that this task serves.

    Args:
        versions: of packages, as this process uses them; called when first asked.

    Example:

    >>> served = ServedChief()
    >>> first, second = ChiefName("a1", "c:1"), ChiefName("b2", "c:2")
    >>> served.answer(Question(first, takes=True)).serves.address
    'c:1'
    >>> served.answer(Question(second, takes=True)).serves.address
    'c:1'
    >>> served.answer(Question(second, takes=True, replaces="a1")).serves.address
    'c:2'
    >>> served.answer(Question(second, leaves=True)).serves
    """

    def __init__(self, versions: Callable[[], Mapping[str, str | None]] = dict) -> None:
        self._versions = versions
        self._lock = threading.Lock()
        self._chief: ChiefName | None = None
        self._since_s = 0.0

    def answer(self, question: Question) -> Introduction:
        """Do what a chief asks for, unless another one has this task, and say who does."""
        versions = self._versions()
        with self._lock:
            known, asking = self._chief, question.chief
            if known is None or known.process in (asking.process, question.replaces):
                if question.takes and known != asking:
                    self._chief, self._since_s = asking, time.monotonic()
                elif question.leaves and known is not None and known.process == asking.process:
                    self._chief = None
            return Introduction(self._chief, time.monotonic() - self._since_s, versions)
