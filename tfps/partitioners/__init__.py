"""Division of variables into shards: rules for rows, and partitioners. No TensorFlow."""

from tfps.partitioners.balanced import Balanced
from tfps.partitioners.by_path import ByPath
from tfps.partitioners.by_size import FixedShardsPartitioner, MaxSizePartitioner, MinSizePartitioner
from tfps.partitioners.row_rule import Contiguous, Modulo, RowRule, ShuffledRows
from tfps.partitioners.row_spread import RowModulo, RowShuffle
from tfps.partitioners.sharding import Partitioner, Sharding
from tfps.partitioners.variable_spec import VariableSpec
from tfps.partitioners.whole import Whole

__all__ = [
    "Balanced",
    "ByPath",
    "Contiguous",
    "FixedShardsPartitioner",
    "MaxSizePartitioner",
    "MinSizePartitioner",
    "Modulo",
    "Partitioner",
    "RowShuffle",
    "RowModulo",
    "RowRule",
    "ShuffledRows",
    "Sharding",
    "VariableSpec",
    "Whole",
]
