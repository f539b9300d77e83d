"""Assigns names to the job's resources on servers. Pure: no TensorFlow."""

from __future__ import annotations

import itertools
import re

VARIABLES = "variables"
SLABS = "slabs"
BOOKKEEPING = "bookkeeping"

# TensorFlow accepts these characters in any name; ">" marks our additions.
_REFUSED = re.compile(r"[^\w./-]", re.ASCII)


class ResourceNames:
    """Names resources by their paths, so that a program that is built again finds its own.

    The name of a variable is its path; the path of an optimizer's variable begins with the
    optimizer's name. A second resource of a path gets a number. Numbers are not used again after a
    resource is freed, since the time of that is unknown. Each path has its own count, so the order
    in which layers are built makes no difference.

    Example:

    >>> names = ResourceNames()
    >>> [names.unique_name(path) for path in ("dense/kernel", "adam/iteration", "dense/kernel")]
    ['variables/dense/kernel', 'variables/adam/iteration', 'variables/dense/kernel>2']
    >>> names.unique_name("my layer/kernel")
    'variables/my>20>layer/kernel'
    """

    def __init__(self) -> None:
        self._counts: dict[str, itertools.count[int]] = {}

    def unique_name(self, path: str, *, kind: str = VARIABLES) -> str:
        """Return a name that is unique in the job, for a path that is the same in each run.

        ``kind`` keeps variables of users apart from the runtime's own.
        """
        name = f"{kind}/{_REFUSED.sub(_escape, path)}"
        # A single operation each, because models may be built in several threads.
        number = next(self._counts.setdefault(name, itertools.count(1)))
        return name if number == 1 else f"{name}>{number}"


def _escape(match: re.Match[str]) -> str:
    """Return the code of a character between two marks, so that different paths stay different."""
    return f">{ord(match[0]):x}>"
