"""The tasks of a cluster: `TF_CONFIG` and cluster resolvers as one validated, printable value."""

from tfps.cluster.announcement import (
    FINISHED_FUNCTION,
    SUPERVISED,
    announce_at_exit,
    announce_finished,
)
from tfps.cluster.clients import Client, close_clients, has_clients, register_client
from tfps.cluster.moves import record_move
from tfps.cluster.ports import PortLease, lease_ports
from tfps.cluster.process_environment import prepare_process
from tfps.cluster.spec import JOB_ORDER, TASK_TYPES, ClusterSpec
from tfps.cluster.threads import data_connections, inter_op_threads
from tfps.cluster.timeout import timeout_from_environment
from tfps.cluster.waiting import accepts_connections, missing_tasks, wait_for_tasks
from tfps.cluster.worker_devices import devices_of_workers, logical_cpus

__all__ = [
    "FINISHED_FUNCTION",
    "JOB_ORDER",
    "SUPERVISED",
    "TASK_TYPES",
    "Client",
    "ClusterSpec",
    "PortLease",
    "accepts_connections",
    "announce_at_exit",
    "announce_finished",
    "close_clients",
    "data_connections",
    "devices_of_workers",
    "has_clients",
    "inter_op_threads",
    "lease_ports",
    "logical_cpus",
    "missing_tasks",
    "record_move",
    "prepare_process",
    "register_client",
    "timeout_from_environment",
    "wait_for_tasks",
]
