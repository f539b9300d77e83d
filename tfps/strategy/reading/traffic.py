"""`stats().traffic`: what has travelled between workers and each server, and before coding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfps.consistency.ledger import LedgerLayout
from tfps.runtime.coordinator.runtime import Runtime
from tfps.training.report.traffic_rate import TrafficRate
from tfps.transport.traffic import ALL_VARIABLES, NO_CODEC, message_bytes

UP, DOWN = "up", "down"
SOCKET, MESSAGE = "socket", "message"


@dataclass(frozen=True, kw_only=True)
class CodecTraffic:
    """What a codec has made of a group of variables; the codec "none" is all that has none."""

    codec: str
    group: str
    sent_bytes: int
    plain_bytes: int


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What has travelled between all workers and one server in one direction.

    Attributes:
        server: its index.
        direction: "up" to the server, or "down" from it.
        sent_bytes: whole messages, with their headers.
        counted_at: "socket": on `direct`, as they were written to the socket, before encryption,
            since the server's process has opened the job; "message": elsewhere, what servers have
            received from TensorFlow's RPC and given to it, without what that adds.
        plain_bytes: the same before coding.
        codecs: how both are divided between codecs and groups of variables; one entry where there
            is no codec.
        megabytes_per_s: in the current or latest epoch of `fit`, from the first step that was seen
            to the last; None before two samples of it, a second apart or at its end.
    """

    server: int
    direction: str
    sent_bytes: int
    counted_at: str
    plain_bytes: int
    codecs: tuple[CodecTraffic, ...]
    megabytes_per_s: float | None

    @property
    def ratio(self) -> float:
        """How many bytes there would be without codecs for each that was sent."""
        return self.plain_bytes / self.sent_bytes if self.sent_bytes else 1.0


def traffic_of(
    server: int,
    layout: LedgerLayout,
    cells: np.ndarray[Any, Any],
    *,
    groups: Sequence[tuple[str, str, str]],
    socket_bytes: tuple[int, int] | None,
    bytes_per_s: tuple[float, float] | None,
) -> list[Traffic]:
    """Both directions of one server.

    Args:
        server: its index.
        layout: of its ledger.
        cells: of it.
        groups: direction, codec and group of what the ledger counts apart.
        socket_bytes: received and sent, if the server's process counts them.
        bytes_per_s: received and sent, where they were measured.
    """
    counted = message_bytes(layout, cells) if socket_bytes is None else socket_bytes
    found = []
    for place, direction in enumerate((UP, DOWN)):
        coded = [
            CodecTraffic(
                codec=codec,
                group=group,
                sent_bytes=int(cells[layout.coded(number, is_plain=0)]),
                plain_bytes=int(cells[layout.coded(number, is_plain=1)]),
            )
            for number, (way, codec, group) in enumerate(groups)
            if way == direction
        ]
        rest = counted[place] - sum(part.sent_bytes for part in coded)
        rest_of_all = CodecTraffic(
            codec=NO_CODEC, group=ALL_VARIABLES, sent_bytes=rest, plain_bytes=rest
        )
        codecs = (*coded, rest_of_all)
        found.append(
            Traffic(
                server=server,
                direction=direction,
                sent_bytes=counted[place],
                counted_at=MESSAGE if socket_bytes is None else SOCKET,
                plain_bytes=sum(part.plain_bytes for part in codecs),
                codecs=codecs,
                megabytes_per_s=None if bytes_per_s is None else bytes_per_s[place] / 1e6,
            )
        )
    return found


def take_traffic(
    runtime: Runtime, rate: TrafficRate | None, *, cells: Sequence[Any] | None = None
) -> tuple[Traffic, ...]:
    """The traffic of all servers.

    Args:
        runtime: the job.
        rate: of the run whose rates are shown; None: there is none.
        cells: of all servers; None: as the rate has seen them last, without asking anybody.
    """
    asks, bytes_per_s = cells is not None, None if rate is None else rate.bytes_per_s
    if cells is None:
        cells = [] if rate is None else rate.cells
    found: list[Traffic] = []
    for server, own in zip(runtime.servers, cells, strict=False):
        found += traffic_of(
            server.index,
            server.layout,
            own,
            groups=server.coded_groups.names,
            socket_bytes=runtime.data_plane.socket_bytes(server.index) if asks else None,
            bytes_per_s=None if bytes_per_s is None else bytes_per_s[server.index],
        )
    return tuple(found)


def describe(traffic: Iterable[Traffic]) -> str:
    """For the progress line: ``12.3 MB/s up, 4.1x``; the ratio where there is a codec."""
    up = [each for each in traffic if each.direction == UP]
    if not up or any(each.megabytes_per_s is None for each in up):
        return ""
    text = f"{sum(each.megabytes_per_s or 0.0 for each in up):.1f} MB/s up"
    if all(len(each.codecs) == 1 for each in up):
        return text
    ratio = sum(each.plain_bytes for each in up) / sum(each.sent_bytes for each in up)
    return f"{text}, {ratio:.1f}x"
