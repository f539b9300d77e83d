"""The record that the next chief of a job gets, and the reasons to refuse it."""

from __future__ import annotations

import dataclasses
import json
import socket

from hypothesis import given
from hypothesis import strategies as st

from tests.messages import check_message, raises
from tfps.errors import ConfigError
from tfps.placement.plan import View
from tfps.recovery.chief.job_record import JobRecord, find_differences, replaced_optimizers
from tfps.recovery.chief.succession import JobOnServers

NAMES = st.text(min_size=1, max_size=9)
VIEWS = st.builds(
    View,
    NAMES,
    st.integers(0, 3),
    NAMES,
    st.integers(0, 1 << 40),
    st.lists(st.integers(0, 9)).map(tuple),
    st.sampled_from(["float32", "int64"]),
    st.just(4),
    st.none() | st.tuples(NAMES, st.integers(1, 9), st.integers(1, 9)),
)
RECORDS = st.builds(
    JobRecord,
    chief=NAMES,
    workers=st.integers(1, 9),
    servers=st.integers(1, 9),
    consistency=NAMES,
    bound_steps=st.none() | st.integers(0, 9),
    views=st.dictionaries(NAMES, VIEWS, max_size=3),
    others=st.lists(NAMES, max_size=3).map(tuple),
)


@given(record=RECORDS)
def test_round_trip(record: JobRecord) -> None:
    assert JobRecord.from_json(record.to_json()) == record


@given(record=RECORDS)
def test_fields_of_another_version_are_passed_over(record: JobRecord) -> None:
    """The protocol says whether two versions understand each other."""
    fields = json.loads(record.to_json())
    for part in (fields, *fields["views"].values()):
        part["of_tomorrow"] = 1
    assert JobRecord.from_json(json.dumps(fields)) == record


@given(held=RECORDS, wanted=RECORDS)
def test_every_difference_is_named(held: JobRecord, wanted: JobRecord) -> None:
    """But for the chief, which is another one, and the views, which are compared one by one."""
    fields = ("protocol", "workers", "servers", "consistency")
    differ = [name for name in fields if getattr(held, name) != getattr(wanted, name)]
    differ = ["max_workers" if name == "workers" else name for name in differ]
    assert [line.split(":")[0] for line in find_differences(held, wanted)] == differ


def _job_on_servers(*records: JobRecord | None) -> JobOnServers:
    job = JobOnServers(container="tfps_night", devices=())
    job.records = list(records)
    return job


def test_a_chief_that_lives_keeps_its_job() -> None:
    with socket.create_server(("127.0.0.1", 0)) as chief:
        address = f"127.0.0.1:{chief.getsockname()[1]}"
        held = JobRecord(chief=address, workers=1, servers=1, consistency="Asynchronous()")
        wanted = dataclasses.replace(held, chief="127.0.0.1:1")
        with raises(ConfigError, "job", received="'night'", remedy=address):
            _job_on_servers(held).check(wanted, job="night")
        _job_on_servers(held).check(held, job="night")  # its own address: the one before is gone
    _job_on_servers(held).check(wanted, job="night")


def test_a_part_of_a_job_is_refused() -> None:
    record = JobRecord(chief="", workers=1, servers=3, consistency="Asynchronous()")
    for records, gone in (((None, record, None), "ps 0 and ps 2"), ((record, None), "ps 1")):
        with raises(ConfigError, "'night'", received=gone, remedy="fresh=True"):
            _job_on_servers(*records).check(record, job="night")


OPTIMIZERS = st.sets(st.sampled_from(["adam", "sgd", "ftrl"]), max_size=2)
SLOTS = ("iteration", "learning_rate", "w_momentum")


def _state(optimizers: set[str]) -> list[str]:
    return [f"{name}/{slot}" for name in sorted(optimizers) for slot in SLOTS]


@given(before=OPTIMIZERS, now=OPTIMIZERS, model=st.booleans())
def test_an_optimizer_that_another_one_replaces_is_named(
    before: set[str], now: set[str], model: bool
) -> None:
    """A program that makes a model of its own as well, or no optimizer, trains something else."""
    made = _state(now - before) + (["dense/kernel"] if model else [])
    lines = replaced_optimizers(unopened=_state(before - now), created=made)
    expected = sorted(before - now) if now - before and not model else []
    for line, name in zip(lines, expected, strict=True):
        for other in now - before:
            check_message(line, "optimizer", received=repr(other), remedy=f"expected {name!r}")
