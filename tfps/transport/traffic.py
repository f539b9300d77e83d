"""What of a message a codec has coded, so that bytes before and after coding are counted. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from tfps.consistency.ledger import CODED_GROUPS, LedgerLayout
from tfps.transport.message import REPLY_FIELDS, REQUEST_FIELDS

FIELD_BYTES = 8  # of a header
NO_CODEC, ALL_VARIABLES = "none", "all"


class CodedPart(NamedTuple):
    """A part of a message whose variables one codec has coded.

    The layouts of an optimizer call name theirs (`runtime.message.wire.CallWire`: ``coded_up`` of
    its request, ``coded_down`` of its reply), and a server adds them to its ledger with each push.
    What a message has beside these parts counts as it is. Sizes are those of every such message:
    with scales, ids and padding, as they lie in the payload.

    Args:
        codec: as `strategy.stats()` calls it, for example ``TopK(0.01)``.
        group: of variables, likewise; of `ByPath` the pattern that chose the codec.
        sent_bytes: that lie in the payload.
        plain_bytes: that would without the codec.
    """

    codec: str
    group: str
    sent_bytes: int
    plain_bytes: int


class CountedPart(NamedTuple):
    """What a ledger adds for each message: the number of a group, and bytes of both kinds."""

    group_number: int
    sent_bytes: int
    plain_bytes: int


class CodedGroups:
    """Numbers for what a server counts apart, in the order in which it is heard of.

    When all numbers are taken, what is new counts as the last of them.

    Example:

    >>> groups = CodedGroups()
    >>> groups.numbered("up", [CodedPart("Cast(float16)", "all", 512, 1024)])
    [CountedPart(group_number=0, sent_bytes=512, plain_bytes=1024)]
    >>> groups.names
    [('up', 'Cast(float16)', 'all')]
    """

    def __init__(self) -> None:
        self.names: list[tuple[str, str, str]] = []  # direction, codec, group

    def numbered(self, direction: str, parts: Iterable[CodedPart]) -> list[CountedPart]:
        """Parts of the messages of a direction, ``"up"`` to the server or ``"down"`` from it."""
        return [
            CountedPart(self._number((direction, part.codec, part.group)), *part[2:])
            for part in parts
        ]

    def _number(self, name: tuple[str, str, str]) -> int:
        if name not in self.names and len(self.names) < CODED_GROUPS:
            self.names.append(name)
        return self.names.index(name) if name in self.names else CODED_GROUPS - 1


def message_bytes(layout: LedgerLayout, cells: np.ndarray[Any, Any]) -> tuple[int, int]:
    """What a server has received and sent in messages, as its ledger says."""
    messages = int(cells[layout.MESSAGES])
    received, sent = int(cells[layout.BYTES_RECEIVED]), int(cells[layout.BYTES_SENT])
    return (
        received + messages * REQUEST_FIELDS * FIELD_BYTES,
        sent + messages * REPLY_FIELDS * FIELD_BYTES,
    )
