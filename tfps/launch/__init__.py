"""Starts tasks: serves as one, runs a script as another, or runs a whole cluster on one machine."""

from tfps.keras_backend import check_backend
from tfps.launch.local_cluster import LocalCluster
from tfps.launch.serving import serve

__all__ = ["LocalCluster", "serve"]

check_backend()
