"""Tools for tests of models and training loops: a cluster in one process."""

from tfps.testing.in_process_cluster import InProcessCluster

__all__ = ["InProcessCluster"]
