"""`stats().traffic`: the bytes between workers and each server, before and after encoding."""

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
    """The bytes of all variables that one codec encodes, in one direction.

    Attributes:
        codec: the codec, for example ``TopK(0.01)``; "none" for variables without a codec.
        group: the variables: "all", or the pattern of a `ByPath` that chose the codec.
        sent_bytes: the bytes that are sent.
        plain_bytes: the bytes without the codec.
    """

    codec: str
    group: str
    sent_bytes: int
    plain_bytes: int


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The traffic between all workers and one server in one direction.

    Attributes:
        server: the server's index.
        direction: "up" to the server, or "down" from it.
        sent_bytes: the size of whole messages, with their headers.
        counted_at: "socket": with `direct`, the bytes written to the socket, before encryption,
            since the server's process has opened the job; "message": otherwise, the bytes that
            servers exchange with TensorFlow's RPC, without its overhead.
        plain_bytes: the same size before encoding.
        codecs: the shares of codecs and groups of variables; one entry without codecs.
        megabytes_per_s: the rate in the current or last epoch of `fit`, from the first observed
            step to the last; None before two samples, a second apart or at the epoch's end.
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
        """The number of plain bytes for each sent byte; 1 without codecs."""
        return self.plain_bytes / self.sent_bytes if self.sent_bytes else 1.0


def compute_server_traffic(
    server: int,
    layout: LedgerLayout,
    cells: np.ndarray[Any, Any],
    *,
    groups: Sequence[tuple[str, str, str]],
    socket_bytes: tuple[int, int] | None,
    bytes_per_s: tuple[float, float] | None,
) -> list[Traffic]:
    """Return the traffic of one server in both directions.

    Args:
        server: the server's index.
        layout: the layout of its ledger.
        cells: its ledger, int64.
        groups: the direction, codec and group of each separate counter in the ledger.
        socket_bytes: (received, sent), if the server's process counts them.
        bytes_per_s: (received, sent), if they were measured.
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


def compute_traffic(
    runtime: Runtime, rate: TrafficRate | None, *, cells: Sequence[Any] | None = None
) -> tuple[Traffic, ...]:
    """Return the traffic of all servers.

    Args:
        runtime: the job.
        rate: the traffic rate of the run to show; None: there is none.
        cells: the servers' ledgers; None: those that the rate has seen last, without a request.
    """
    asks, rates = cells is not None, None if rate is None else rate.rates_by_server
    if cells is None:
        cells = [] if rate is None else rate.cells
    found: list[Traffic] = []
    for server, own in zip(runtime.servers, cells, strict=False):
        found += compute_server_traffic(
            server.index,
            server.layout,
            own,
            groups=server.coded_groups.names,
            socket_bytes=runtime.data_plane.socket_bytes(server.index) if asks else None,
            bytes_per_s=None if rates is None else rates[server.index][:2],
        )
    return tuple(found)


def describe_traffic(traffic: Iterable[Traffic]) -> str:
    """Return the progress line's text: ``12.3 MB/s up, 4.1x``; the ratio only with a codec."""
    up = [each for each in traffic if each.direction == UP]
    if not up or any(each.megabytes_per_s is None for each in up):
        return ""
    text = f"{sum(each.megabytes_per_s or 0.0 for each in up):.1f} MB/s up"
    if all(len(each.codecs) == 1 for each in up):
        return text
    ratio = sum(each.plain_bytes for each in up) / sum(each.sent_bytes for each in up)
    return f"{text}, {ratio:.1f}x"
