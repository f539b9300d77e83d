"""The chief that a task serves: the first one that asks, until it leaves or is lost."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tfps.json_text import parse_json

INTRODUCE_FUNCTION = "tfps_introduce"  # (question) -> answer; of every worker and server of tfps


@dataclass(frozen=True)
class ChiefIdentity:
    """The process, address and job of a chief, and whether its server listens.

    Args:
        process: a random text of each process.
        address: the address of its server; empty if it is not known yet.
        job: the name of its job; empty for a job without one.
        is_ready: whether its server listens.
    """

    process: str
    address: str = ""
    job: str = ""
    is_ready: bool = False

    def __str__(self) -> str:
        """Return the name for messages.

        Example:

        >>> str(ChiefIdentity("a1", "c:1", "night")), str(ChiefIdentity("a1"))
        ('job night of the chief at c:1', 'a job of a chief that is starting')
        """
        job = f"job {self.job}" if self.job else "a job"
        return f"{job} of {f'the chief at {self.address}' if self.address else STARTING}"


STARTING = "a chief that is starting"


@dataclass(frozen=True)
class Question:
    """A chief's question to a task.

    Args:
        chief: the chief that asks.
        takes: whether the task shall serve this chief from now on.
        leaves: whether the task shall stop serving this chief.
        replaces: the process of a lost chief that the task may still serve.
    """

    chief: ChiefIdentity
    takes: bool = False
    leaves: bool = False
    replaces: str = ""

    def to_json(self) -> str:
        """Return the question as JSON text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Question:
        """Make a question from its JSON text."""
        question: Question = parse_json(cls, text)
        return question


@dataclass(frozen=True)
class Introduction:
    """A task's reply to a chief.

    Args:
        serves: the chief that it serves after the question; None for no chief.
        since_s: the seconds for which it has served this chief, in its current state.
        versions: package -> its version in the task's process.
        process: the name of the task's process; a restarted task has another one.
    """

    serves: ChiefIdentity | None = None
    since_s: float = 0.0
    versions: Mapping[str, str | None] = field(default_factory=dict)
    process: str = ""

    def to_json(self) -> str:
        """Return the introduction as JSON text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Introduction:
        """Make an introduction from its JSON text."""
        try:
            introduction: Introduction = parse_json(cls, text)
        except ValueError:  # of a tfps whose introductions have other fields
            return cls()
        return introduction


@functools.lru_cache(maxsize=1)
def name_process(_pid: int) -> str:
    """Return a name of this process, which has the number; a fork is another process."""
    return secrets.token_hex(8)


class ServedChief:
    """Records the chief that this task serves, and replies to chiefs' questions.

    Args:
        versions: returns the versions of packages in this process; called for each question.

    Example:

    >>> served = ServedChief()
    >>> first, second = ChiefIdentity("a1", "c:1"), ChiefIdentity("b2", "c:2")
    >>> served.reply_to(Question(first, takes=True)).serves.address
    'c:1'
    >>> served.reply_to(Question(second, takes=True)).serves.address
    'c:1'
    >>> served.reply_to(Question(second, takes=True, replaces="a1")).serves.address
    'c:2'
    >>> served.reply_to(Question(second, leaves=True)).serves
    """

    def __init__(self, versions: Callable[[], Mapping[str, str | None]] = dict) -> None:
        self._versions = versions
        self._lock = threading.Lock()
        self._chief: ChiefIdentity | None = None
        self._since_s = 0.0

    def reply_to(self, question: Question) -> Introduction:
        """Handle a chief's question, unless the task serves another, and return the served one."""
        versions = self._versions()
        with self._lock:
            known, asking = self._chief, question.chief
            if known is None or known.process in (asking.process, question.replaces):
                if question.takes and known != asking:
                    self._chief, self._since_s = asking, time.monotonic()
                elif question.leaves and known is not None and known.process == asking.process:
                    self._chief = None
            since_s, process = time.monotonic() - self._since_s, name_process(os.getpid())
            return Introduction(self._chief, since_s, versions, process)
