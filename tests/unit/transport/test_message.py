"""The wire format: positions are dense, and what both sides must agree on does not move."""

from __future__ import annotations

import enum

import pytest

from tfps.transport.message import REPLY_FIELDS, REQUEST_FIELDS, Kind, Reply, Request


@pytest.mark.parametrize("fields", [Request, Reply, Kind])
def test_values_are_dense(fields: type[enum.IntEnum]) -> None:
    assert [int(field) for field in fields] == list(range(len(fields)))
    assert len(fields.__members__) == len(fields)  # no two names for one position


def test_headers_have_a_place_for_every_field() -> None:
    assert (len(Request), len(Reply)) == (REQUEST_FIELDS, REPLY_FIELDS)


def test_a_header_begins_with_what_a_server_checks_first() -> None:
    """Also a server of another protocol version must find them."""
    assert list(Request)[:3] == [Request.PROTOCOL, Request.JOB, Request.PLAN]
    assert next(iter(Reply)) is Reply.STATUS


def test_durations_lie_side_by_side() -> None:
    """A server counts them as one slice, in the order of the ledger' histograms."""
    first = Request.PUSH_MICROSECONDS
    measured = list(Request)[first : Request.WAIT_MICROSECONDS + 1]
    assert measured == [
        Request.PUSH_MICROSECONDS,
        Request.PULL_MICROSECONDS,
        Request.WAIT_MICROSECONDS,
    ]
