"""The numbers of `stats().traffic`, from the ledgers' counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfps.consistency.ledger import CODED_GROUPS, Ledger, LedgerLayout
from tfps.consistency.logic import PlainLogic
from tfps.strategy.reading.traffic import CodecTraffic, compute_server_traffic, describe_traffic
from tfps.transport.message import REPLY_FIELDS, REQUEST_FIELDS
from tfps.transport.traffic import CodedGroups, CodedPart

LAYOUT = LedgerLayout(2)
UP_HEADER, DOWN_HEADER = 8 * REQUEST_FIELDS, 8 * REPLY_FIELDS
TOP, CAST = CodedPart("TopK(0.01)", "dense", 100, 1000), CodedPart("Cast(bfloat16)", "all", 50, 100)


def _cells(groups: CodedGroups, *messages: tuple[int, int, list[Any], list[Any]]) -> np.ndarray:
    cells = np.array(LAYOUT.make_blank_cells())
    for received, sent, up, down in messages:
        ledger = Ledger(layout=LAYOUT, read=cells.__getitem__, logic=PlainLogic())
        coded = [*groups.assign_numbers("up", up), *groups.assign_numbers("down", down)]
        ledger.count_traffic(received_bytes=received, sent_bytes=sent, coded=coded)
        for _, cell, amount in ledger.additions:
            cells[cell] += amount
    return cells


def _traffic(groups: CodedGroups, cells: np.ndarray, **options: Any) -> list[Any]:
    options = {"socket_bytes": None, "bytes_per_s": None, **options}
    return compute_server_traffic(1, LAYOUT, cells, groups=groups.names, **options)


def test_without_a_codec_all_is_one_group() -> None:
    groups = CodedGroups()
    up, down = _traffic(groups, _cells(groups, (0, 640, [], []), (320, 640, [], [])))
    assert (up.server, up.direction, up.counted_at) == (1, "up", "message")
    assert up.sent_bytes == up.plain_bytes == 320 + 2 * UP_HEADER
    assert down.sent_bytes == down.plain_bytes == 1280 + 2 * DOWN_HEADER
    sent = 1280 + 2 * DOWN_HEADER
    whole = CodecTraffic(codec="none", group="all", sent_bytes=sent, plain_bytes=sent)
    assert down.codecs == (whole,)
    assert up.ratio == 1.0


def test_what_codecs_have_coded_counts_by_group() -> None:
    groups = CodedGroups()
    cells = _cells(groups, (150, 50, [TOP], [CAST]), (150, 50, [TOP], [CAST]))
    up, down = _traffic(groups, cells)
    coded, rest = up.codecs
    assert coded == CodecTraffic(
        codec="TopK(0.01)", group="dense", sent_bytes=200, plain_bytes=2000
    )
    assert rest.sent_bytes == rest.plain_bytes == 2 * 50 + 2 * UP_HEADER
    assert up.plain_bytes - up.sent_bytes == 2 * 900
    assert down.codecs[0].codec == "Cast(bfloat16)"
    assert down.plain_bytes - down.sent_bytes == 100


def test_sockets_count_what_lies_around_messages_too() -> None:
    groups = CodedGroups()
    cells = _cells(groups, (150, 50, [TOP], []))
    up, down = _traffic(groups, cells, socket_bytes=(400, 300), bytes_per_s=(2.5e6, 1e6))
    assert (up.counted_at, up.sent_bytes, up.plain_bytes) == ("socket", 400, 1300)
    assert (up.megabytes_per_s, down.megabytes_per_s) == (2.5, 1.0)


def test_the_progress_line_has_the_ratio_where_there_is_a_codec() -> None:
    groups = CodedGroups()
    plain = _traffic(groups, _cells(groups, (1000, 0, [], [])), bytes_per_s=(12.34e6, 0.0))
    assert describe_traffic(plain) == "12.3 MB/s up"
    assert describe_traffic([*plain, *plain]) == "24.7 MB/s up"
    assert describe_traffic(_traffic(groups, _cells(groups))) == ""
    assert describe_traffic([]) == ""
    coded = _cells(groups, (100, 0, [TOP], []))
    ratio = 1 + 900 / (100 + UP_HEADER)
    described = describe_traffic(_traffic(groups, coded, bytes_per_s=(12.34e6, 0.0)))
    assert described == f"12.3 MB/s up, {ratio:.1f}x"


def test_more_groups_than_are_counted_are_the_last() -> None:
    groups = CodedGroups()
    parts = [CodedPart(f"codec {number}", "all", 1, 2) for number in range(CODED_GROUPS + 3)]
    up, _ = _traffic(groups, _cells(groups, (CODED_GROUPS + 3, 0, parts, [])))
    assert [part.sent_bytes for part in up.codecs[:-1]] == [1] * (CODED_GROUPS - 1) + [4]
    assert up.plain_bytes - up.sent_bytes == CODED_GROUPS + 3
