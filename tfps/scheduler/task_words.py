"""The words that a task with a place tells the scheduler, as a line of JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfps.cluster.address import LARGEST_PORT, address_problem


@dataclass(frozen=True, kw_only=True)
class TaskWords:
    """The words of one message, each None if the message does not have it.

    Args:
        cluster: role -> addresses, as an earlier scheduler has told the task.
        data_port: the port of a server's data plane.
        alive: the tasks (role, index) that a chief holds alive.
        end: the status with which the job has ended.

    Example:

    >>> TaskWords.from_json('{"alive": [["ps", 0]]}').alive
    [('ps', 0)]
    """

    cluster: dict[str, list[str]] | None = None
    data_port: int | None = None
    alive: list[tuple[str, int]] | None = None
    end: int | None = None

    @classmethod
    def from_json(cls, text: bytes | str) -> TaskWords:
        """Read a message.

        Raises:
            ValueError: a task does not write such a message; the text has the reason.
        """
        value = read_object(text)
        right: dict[str, Callable[[Any], bool]] = {
            "cluster": _is_cluster,
            "data_port": lambda port: type(port) is int and 1 <= port <= LARGEST_PORT,
            "alive": lambda tasks: isinstance(tasks, list) and all(map(_is_task, tasks)),
            "end": lambda status: type(status) is int,
        }
        words = {key: value[key] for key in right if value.get(key) is not None}
        for key, word in words.items():
            if not right[key](word):
                raise ValueError(f"{key}: received {word!r:.100}")
        if "alive" in words:
            words["alive"] = [(role, index) for role, index in words["alive"]]
        return cls(**words)


def read_object(text: bytes | str) -> dict[str, Any]:
    """Read an object of JSON.

    Raises:
        ValueError: the text is another one.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        value = None
    if not isinstance(value, dict):
        raise ValueError(f"received {text[:100]!r}, expected an object")
    return value


def printable(text: str) -> str:
    r"""Return a text of a peer without characters that change a terminal or begin a line.

    Example:

    >>> printable("a\x1b[31m\nb")
    'a?[31m?b'
    """
    return "".join(each if each.isprintable() else "?" for each in text)


def _is_cluster(jobs: object) -> bool:
    return isinstance(jobs, dict) and all(
        isinstance(addresses, list) and all(address_problem(each) is None for each in addresses)
        for addresses in jobs.values()
    )


def _is_task(task: object) -> bool:
    return (
        isinstance(task, list)
        and len(task) == 2
        and isinstance(task[0], str)
        and type(task[1]) is int
    )
