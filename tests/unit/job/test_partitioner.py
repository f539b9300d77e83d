"""A partitioner from a job file."""

from __future__ import annotations

from tests.messages import check_message, raises
from tfps import partitioners
from tfps.config.schema import PARTITIONERS, PartitionerSection
from tfps.job.partitioner import PARTITIONER_MAKERS, partitioner_of
from tfps.job.rule_problems import rule_problems


def test_every_name_makes_one() -> None:
    assert tuple(PARTITIONER_MAKERS) == PARTITIONERS
    for name in PARTITIONERS:
        section = PartitionerSection(name=name)
        assert isinstance(partitioner_of(section), partitioners.Partitioner)


def test_numbers_and_rules_are_passed_on() -> None:
    section = PartitionerSection(
        name="min_size", shards=3, min_shard_bytes=8, rules={"table": "row_modulo"}
    )
    assert partitioner_of(section) == partitioners.ByPath(
        {"table": partitioners.RowModulo(3)}, otherwise=partitioners.MinSizePartitioner(8, 3)
    )
    assert partitioner_of(PartitionerSection()) == partitioners.Whole()
    with raises(ValueError, "shards", received=0):
        PartitionerSection(shards=0)


def test_a_rule_that_is_no_pattern() -> None:
    section = PartitionerSection(rules={"(": "whole"})
    (problem,) = rule_problems(lambda: partitioner_of(section), section="partitioner")
    check_message(problem, "partitioner.rules", received="'('", remedy="regular expression")
