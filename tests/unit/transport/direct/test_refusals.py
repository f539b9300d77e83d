"""Refusals: said once, so that a stranger cannot fill the log or the memory."""

from __future__ import annotations

import logging

import pytest

from tfps.transport.direct.refusals import MAX_ADDRESSES, REASONS_PER_ADDRESS, RefusalLog

LOG = logging.getLogger(__name__)


def _levels(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [record.levelno for record in caplog.records]


def test_each_address_and_reason_is_a_warning_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    refusals = RefusalLog(LOG)
    for address, reason in [("a", "x"), ("a", "x"), ("b", "x"), ("a", "y"), ("b", "x")]:
        refusals.log_refusal(address, reason)
    warning, debug = logging.WARNING, logging.DEBUG
    assert _levels(caplog) == [warning, debug, warning, warning, debug]
    assert caplog.messages[0] == "refused a connection from a: x"


def test_reasons_that_change_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    refusals = RefusalLog(LOG)
    for number in range(100):
        refusals.log_refusal("a", f"garbage {number}")
    assert _levels(caplog) == [logging.WARNING] * REASONS_PER_ADDRESS


def test_only_so_many_addresses_are_remembered(caplog: pytest.LogCaptureFixture) -> None:
    refusals = RefusalLog(LOG)
    refusals.log_refusal("first", "x")
    for number in range(MAX_ADDRESSES):
        refusals.log_refusal(str(number), "x")
    refusals.log_refusal("0", "x")
    assert len(caplog.records) == 1 + MAX_ADDRESSES
    refusals.log_refusal("first", "x")
    assert len(caplog.records) == 2 + MAX_ADDRESSES
