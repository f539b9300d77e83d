"""The strategies for training a job, with memory and traffic as functions of the job's sizes.

Memory is the least that a task needs: the process, state, and the gradients and parameters of a
step. Outputs of layers within a step depend on the model and are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tfps.placement.forecast import PROCESS_BYTES
from tfps.placement.job_sizes import JobSizes

Size = Callable[[JobSizes], int]
Obstacle = Callable[[JobSizes], str]
# The largest table that a worker may hold, as `tfps.bridge.variables.shards.WHOLE_BYTES`.
LARGEST_WHOLE_TABLE_BYTES = 64 << 20


def _no_obstacle(_: JobSizes) -> str:
    return ""


@dataclass(frozen=True)
class TrainingStrategy:
    """A way to train a job.

    Args:
        title: the name in tables.
        task_bytes: the memory of the largest task that computes.
        step_bytes: the traffic of the busiest of these tasks in a step.
        needs: the requirements on the cluster.
        server_bytes: the memory of the fullest parameter server; None: there are none.
        obstacle: why the strategy cannot train a job; empty: it can.
    """

    title: str
    task_bytes: Size
    step_bytes: Size
    needs: str = ""
    server_bytes: Size | None = None
    obstacle: Obstacle = _no_obstacle


def _one_process(sizes: JobSizes) -> int:
    return PROCESS_BYTES + sizes.state_bytes + sizes.pushed_bytes


def _mirrored_task_bytes(sizes: JobSizes) -> int:
    """Return the memory of one process, which has a copy for each device."""
    return PROCESS_BYTES + sizes.workers * (sizes.state_bytes + sizes.pushed_bytes)


def _all_reduced_task_bytes(sizes: JobSizes) -> int:
    """Return the memory of a copy, its gradients and their mean."""
    return _one_process(sizes) + sizes.pushed_bytes


def _all_reduce_bytes(sizes: JobSizes) -> int:
    """Return the traffic of a ring: all parts but one twice, rows of tables once to all others.

    Source: Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of
    Workstations", JPDC 2009.
    """
    others = sizes.workers - 1
    return 4 * others * sizes.gradient_bytes // sizes.workers + 2 * others * sizes.row_bytes


def _worker_bytes(sizes: JobSizes) -> int:
    """Return the memory that a worker needs for a step's parameters and gradients."""
    return PROCESS_BYTES + sizes.pulled_bytes + sizes.pushed_bytes


def _mixed_task_bytes(sizes: JobSizes) -> int:
    """Return a worker's memory with copies of dense weights and slots, and sums of gradients."""
    return _worker_bytes(sizes) + sizes.dense_bytes + sizes.slot_bytes + sizes.gradient_bytes


def _mixed_bytes(sizes: JobSizes) -> int:
    """Return the traffic of slices of dense gradients with all others, and of rows with servers."""
    return 4 * (sizes.workers - 1) * sizes.gradient_bytes // sizes.workers + 2 * sizes.row_bytes


def _local_worker_bytes(sizes: JobSizes) -> int:
    """Return the memory of a worker with an optimizer: weights twice, slots and a gradient."""
    return _one_process(sizes) + sizes.weight_bytes


def _local_bytes(sizes: JobSizes) -> int:
    return 2 * sizes.weight_bytes // sizes.period_steps


def _local_obstacle(sizes: JobSizes) -> str:
    is_too_large = sizes.largest_table_bytes > LARGEST_WHOLE_TABLE_BYTES
    return "a table over 64 MiB" if is_too_large else ""


def _layers_task_bytes(sizes: JobSizes) -> int:
    """Return the memory of an even share, or of the largest variable if that is more."""
    share = -(-(sizes.state_bytes + sizes.pushed_bytes) // sizes.workers)
    return PROCESS_BYTES + max(share, sizes.largest_bytes)


def _layers_bytes(sizes: JobSizes) -> int:
    """Return the bytes of activations and their gradients, sent to both neighbours of a task."""
    return 2 * min(2, sizes.workers - 1) * (sizes.activation_bytes or 0)


def _layers_obstacle(sizes: JobSizes) -> str:
    if sizes.table_bytes:
        return "it has large tables"
    return _one_worker_obstacle(sizes)


def _one_worker_obstacle(sizes: JobSizes) -> str:
    return "one worker" if sizes.workers == 1 else ""


def _largest_task_bytes(sizes: JobSizes) -> int:
    """Return the bytes of the largest task: a worker with its tables, or the chief."""
    tables = sizes.table_bytes + sizes.table_slot_bytes
    # `largest_bytes` may be that of a dense variable, which the chief has anyway.
    largest = max(-(-tables // sizes.workers), sizes.largest_table_bytes) + sizes.row_bytes
    rest = sizes.dense_bytes + sizes.slot_bytes + sizes.pushed_bytes
    return PROCESS_BYTES + max(largest, rest)


def _tables_obstacle(sizes: JobSizes) -> str:
    return _one_worker_obstacle(sizes) if sizes.table_bytes else "no large tables"


def _exchange(sizes: JobSizes) -> int:
    return sizes.step_bytes


def _coded_exchange(sizes: JobSizes) -> int:
    return sizes.exchange_bytes


def _zero_bytes(_: JobSizes) -> int:
    return 0


def _server(sizes: JobSizes) -> int:
    return sizes.server_bytes


def _round_server(sizes: JobSizes) -> int:
    return sizes.round_server_bytes


EQUALS, SERVERS, OWN_LOOP = "all up, equally fast", "servers up", "all up, your loop"
ONE_PROCESS = TrainingStrategy("one process", _one_process, _zero_bytes)
ALL_REDUCED = TrainingStrategy(
    "MultiWorkerMirroredStrategy", _all_reduced_task_bytes, _all_reduce_bytes, EQUALS
)
ASYNCHRONOUS = TrainingStrategy(
    "tfps asynchronous, bounded", _worker_bytes, _coded_exchange, SERVERS, server_bytes=_server
)
LOCAL_STEPS = TrainingStrategy(
    "tfps local steps", _local_worker_bytes, _local_bytes, SERVERS, _server, _local_obstacle
)
LAYERS = TrainingStrategy(
    "layers on tasks", _layers_task_bytes, _layers_bytes, OWN_LOOP, obstacle=_layers_obstacle
)
TABLES = TrainingStrategy(
    "tables on workers",
    _largest_task_bytes,
    lambda sizes: 2 * sizes.row_bytes,
    OWN_LOOP,
    obstacle=_tables_obstacle,
)
STRATEGIES = (
    ONE_PROCESS,
    TrainingStrategy("MirroredStrategy", _mirrored_task_bytes, _zero_bytes, "devices, one machine"),
    ALL_REDUCED,
    TrainingStrategy("TensorFlow's servers", _worker_bytes, _exchange, SERVERS, _server),
    ASYNCHRONOUS,
    TrainingStrategy(
        "tfps synchronous, backup",
        _worker_bytes,
        _coded_exchange,
        "equal, or one spare",
        _round_server,
    ),
    TrainingStrategy(
        "tfps all-reduce", _mixed_task_bytes, _mixed_bytes, EQUALS, _server, _one_worker_obstacle
    ),
    LOCAL_STEPS,
    LAYERS,
    TABLES,
)
