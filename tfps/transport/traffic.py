"""Describes which bytes of messages ledgers count for each codec, and reads these counts. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from tfps.consistency.ledger import CODED_GROUPS, LedgerLayout
from tfps.transport.message import REPLY_FIELDS, REQUEST_FIELDS

FIELD_BYTES = 8  # of a header
NO_CODEC, ALL_VARIABLES = "none", "all"


class CodedPart(NamedTuple):
    """A part of a message whose variables one codec has encoded.

    The layouts of an optimizer call list their parts (`runtime.message.wire.CallWire`:
    ``encoded_request_parts`` and ``encoded_reply_parts``), and a server adds them to its ledger
    with each push. All other bytes of a message count as uncoded. The sizes are the same in every
    such message, and include scales, ids and padding.

    Args:
        codec: the codec, as `strategy.stats()` calls it, for example ``TopK(0.01)``.
        group: the variables, likewise: the pattern of a `ByPath` that chose the codec.
        sent_bytes: the bytes in the payload.
        plain_bytes: the bytes that the payload would have without the codec.
    """

    codec: str
    group: str
    sent_bytes: int
    plain_bytes: int


class CountedPart(NamedTuple):
    """The amounts that a ledger adds for each message with variables of a group."""

    group_number: int  # see `CodedGroups`
    sent_bytes: int  # after encoding
    plain_bytes: int  # before encoding


class CodedGroups:
    """Assigns numbers to the groups that a server counts separately, in order of appearance.

    When all numbers are in use, further groups get the last one.

    Example:

    >>> groups = CodedGroups()
    >>> groups.assign_numbers("up", [CodedPart("Cast(float16)", "all", 512, 1024)])
    [CountedPart(group_number=0, sent_bytes=512, plain_bytes=1024)]
    >>> groups.names
    [('up', 'Cast(float16)', 'all')]
    """

    def __init__(self) -> None:
        self.names: list[tuple[str, str, str]] = []  # direction, codec, group

    def assign_numbers(self, direction: str, parts: Iterable[CodedPart]) -> list[CountedPart]:
        """Number the parts of messages ``"up"`` to the server or ``"down"`` from it."""
        return [
            CountedPart(self._number((direction, part.codec, part.group)), *part[2:])
            for part in parts
        ]

    def _number(self, name: tuple[str, str, str]) -> int:
        if name not in self.names and len(self.names) < CODED_GROUPS:
            self.names.append(name)
        return self.names.index(name) if name in self.names else CODED_GROUPS - 1


def message_bytes(layout: LedgerLayout, cells: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Return the bytes of messages, headers included, that a server has received and sent.

    The counts are those of its ledger.
    """
    messages = int(cells[layout.MESSAGES])
    received, sent = int(cells[layout.BYTES_RECEIVED]), int(cells[layout.BYTES_SENT])
    return (
        received + messages * REQUEST_FIELDS * FIELD_BYTES,
        sent + messages * REPLY_FIELDS * FIELD_BYTES,
    )
