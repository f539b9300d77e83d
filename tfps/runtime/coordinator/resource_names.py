"""How the job's resources on servers are called. Pure: no TensorFlow."""

from __future__ import annotations

import itertools
import re

VARIABLES = "variables"
SLABS = "slabs"
BOOKKEEPING = "bookkeeping"

# TensorFlow takes these in any name; of the rest, ">" marks what is ours.
_REFUSED = re.compile(r"[^\w./-]", re.ASCII)


class ResourceNames:
    """Names resources by what they are, so that a program that is built again finds its own.

    A variable is called by its path, and a path of an optimizer's variable begins with the
    optimizer's name. The second resource of a path is told from the first by a number; numbers are
    not used again when a resource is freed, since nobody can tell when that will be. Each path is
    counted by itself: in which order layers are built makes no difference.

    Example:

    >>> names = ResourceNames()
    >>> [names.of("dense/kernel"), names.of("adam/iteration"), names.of("dense/kernel")]
    ['variables/dense/kernel', 'variables/adam/iteration', 'variables/dense/kernel>2']
    >>> names.of("my layer/kernel")
    'variables/my>20>layer/kernel'
    """

    def __init__(self) -> None:
        self._counts: dict[str, itertools.count[int]] = {}

    def of(self, path: str, *, kind: str = VARIABLES) -> str:
        """A name that no other resource of the job gets, of a path that is the same in each run.

        Its kind keeps variables of users apart from the runtime's own.
        """
        name = f"{kind}/{_REFUSED.sub(_escaped, path)}"
        # One operation each, because models may be built in several threads.
        number = next(self._counts.setdefault(name, itertools.count(1)))
        return name if number == 1 else f"{name}>{number}"


def _escaped(found: re.Match[str]) -> str:
    """A character by its code, between two marks: names of different paths differ."""
    return f">{ord(found[0]):x}>"
