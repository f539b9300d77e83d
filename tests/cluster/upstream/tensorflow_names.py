"""Names of TensorFlow's own tests that are not public: the tests' only `tensorflow.python`."""

from tensorflow.python.distribute.coordinator import cluster_coordinator, fault_tolerance_test_base
from tensorflow.python.distribute.distribute_utils import cache_variable_reads
from tensorflow.python.ops.resource_variable_ops import VariableSpec

__all__ = [
    "VariableSpec",
    "cache_variable_reads",
    "cluster_coordinator",
    "fault_tolerance_test_base",
]
