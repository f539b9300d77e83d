"""The partitioner that a job file describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tfps.config.schema import PartitionerSection
from tfps.partitioners import (
    Balanced,
    ByPath,
    FixedShardsPartitioner,
    MaxSizePartitioner,
    MinSizePartitioner,
    Partitioner,
    RowModulo,
    RowShuffle,
    Whole,
)

# By the names of the job file; each reads its own keys of the section.
PARTITIONER_MAKERS: Mapping[str, Callable[[PartitionerSection], Partitioner]] = {
    "whole": lambda _: Whole(),
    "balanced": lambda section: Balanced(section.min_shard_bytes),
    "fixed_shards": lambda section: FixedShardsPartitioner(section.shards or 2),
    "min_size": lambda section: MinSizePartitioner(section.min_shard_bytes, section.shards),
    "max_size": lambda section: MaxSizePartitioner(section.max_shard_bytes, section.shards),
    "row_modulo": lambda section: RowModulo(section.shards),
    "row_shuffle": lambda section: RowShuffle(section.shards),
}


def partitioner_of(section: PartitionerSection) -> Partitioner:
    """Return the partitioner of ``[partitioner]``.

    Raises:
        ConfigError: a rule is not a regular expression.
    """
    otherwise = PARTITIONER_MAKERS[section.name](section)
    rules = {rule: PARTITIONER_MAKERS[name](section) for rule, name in section.rules.items()}
    return ByPath(rules, otherwise=otherwise) if rules else otherwise
