"""The words that a task with a place tells the scheduler, as a line of JSON. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from tfps.cluster.address import split_address
from tfps.json_text import parse_json


def _check_address(text: str) -> str:
    split_address(text)
    return text


Address = Annotated[str, AfterValidator(_check_address)]


@dataclass(frozen=True, kw_only=True)
class TaskWords:
    """The words of one message, each None if the message does not have it.

    Args:
        cluster: role -> addresses, as an earlier scheduler has told the task.
        alive: the tasks (role, index) that a chief holds alive.
        end: the status with which the job has ended.

    Example:

    >>> TaskWords.from_json('{"alive": [["ps", 0]]}').alive
    [('ps', 0)]
    """

    cluster: dict[str, list[Address]] | None = None
    alive: list[tuple[str, int]] | None = None
    end: int | None = None

    @classmethod
    def from_json(cls, text: bytes | str) -> TaskWords:
        """Read a message.

        Raises:
            ValueError: a task does not write such a message; the text has the reason.
        """
        words: TaskWords = parse_json(cls, text)
        return words


def printable(text: str) -> str:
    r"""Return a text of a peer without characters that change a terminal or begin a line.

    Example:

    >>> printable("a\x1b[31m\nb")
    'a?[31m?b'
    """
    return "".join(each if each.isprintable() else "?" for each in text)
