"""What the next chief of a job is told, and what it is refused for."""

from __future__ import annotations

import dataclasses
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfps.errors import ConfigError
from tfps.placement.plan import View
from tfps.recovery.job_record import JobRecord, differences
from tfps.recovery.succession import Estate

NAMES = st.text(min_size=1, max_size=9)
VIEWS = st.builds(
    View,
    NAMES,
    st.integers(0, 3),
    NAMES,
    st.integers(0, 1 << 40),
    st.lists(st.integers(0, 9)).map(tuple),
    st.sampled_from(["float32", "int64"]),
)
RECORDS = st.builds(
    JobRecord,
    chief=NAMES,
    workers=st.integers(1, 9),
    servers=st.integers(1, 9),
    consistency=NAMES,
    views=st.dictionaries(NAMES, VIEWS, max_size=3),
)


@given(record=RECORDS)
def test_round_trip(record: JobRecord) -> None:
    assert JobRecord.from_json(record.to_json()) == record


@given(held=RECORDS, wanted=RECORDS)
def test_every_difference_is_named(held: JobRecord, wanted: JobRecord) -> None:
    """But for the chief, which is another one, and the views, which are compared one by one."""
    fields = ("protocol", "workers", "servers", "consistency")
    differ = [name for name in fields if getattr(held, name) != getattr(wanted, name)]
    assert [line.split(":")[0] for line in differences(held, wanted)] == differ


def _estate(record: JobRecord | None) -> Estate:
    estate = Estate(container="tfps_night", devices=())
    estate.records = [record]
    return estate


def test_a_chief_that_lives_keeps_its_job() -> None:
    with socket.create_server(("127.0.0.1", 0)) as chief:
        address = f"127.0.0.1:{chief.getsockname()[1]}"
        held = JobRecord(chief=address, workers=1, servers=1, consistency="Asynchronous()")
        wanted = dataclasses.replace(held, chief="127.0.0.1:1")
        with pytest.raises(ConfigError, match=f"'night' is in use by the chief at {address}"):
            _estate(held).check(wanted, job="night")
        _estate(held).check(held, job="night")  # its own address: the one before is gone
    _estate(held).check(wanted, job="night")


def test_a_part_of_a_job_is_refused() -> None:
    wanted = JobRecord(chief="", workers=1, servers=1, consistency="Asynchronous()")
    with pytest.raises(ConfigError, match=r"some of the parameter servers only.*fresh=True"):
        _estate(None).check(wanted, job="night")
