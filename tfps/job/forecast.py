"""Makes a job's model without values, to find the server of each variable and the problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from tfps.config import JobConfig
from tfps.consistency.modes import applies_each_gradient
from tfps.errors import ConfigError, refuse
from tfps.job.consistency import mode_of
from tfps.job.job import build_model
from tfps.job.optimizer import trial_problems
from tfps.job.partitioner import partitioner_of
from tfps.job.placement import placement_of
from tfps.placement.division import divide_variables
from tfps.placement.forecast import Forecast, PlannedVariable
from tfps.placement.step_rows import whole_path, with_step_rows
from tfps.strategy.cluster_size import ClusterSize


def make_forecast(config: JobConfig, *, size: ClusterSize) -> Forecast:
    """Make a job's model, divide it, and place each shard. Starts nothing.

    Args:
        config: the job's configuration, with valid values.
        size: the size of the cluster.

    Raises:
        ConfigError: the optimizer, the partitioner or a strategy would refuse the job.
    """
    from tfps.runtime.program.tables import LEAST_TABLE_BYTES
    from tfps.strategy.dry_run_strategy import DryRunStrategy
    from tfps.strategy.step_shapes import count_rows_looked_up, largest_activation_bytes

    dry_run = DryRunStrategy()
    # The number of steps changes the learning rate, but no variable.
    model = build_model(config, steps=1, scope=dry_run.scope())
    refuse(trial_problems(config.training))
    wanted = dry_run.planned_variables(model)
    try:
        shards = divide_variables(wanted, partitioner_of(config.partitioner), servers=size.servers)
    except ConfigError as error:
        raise ConfigError([f"partitioner: {problem}" for problem in error.problems]) from error
    batch_size = config.data.batch_size
    rows = count_rows_looked_up(model, batch_size=batch_size)
    least_bytes = 0 if config.training.sparse_updates else LEAST_TABLE_BYTES
    shards = with_step_rows(shards, rows, least_bytes=least_bytes)
    mode = mode_of(config.consistency)
    copies = count_worker_copies(
        model.optimizer, workers=size.workers if applies_each_gradient(mode) else 0
    )
    shards = [replace(s, worker_copies=copies.get(whole_path(s.path), 0)) for s in shards]
    placement = placement_of(config.placement)
    forecast = replace(
        Forecast.from_variables(shards, servers=size.servers, placement=placement),
        activation_bytes=largest_activation_bytes(model, batch_size=batch_size),
    )
    refuse(_refusals(model.optimizer, forecast))
    return forecast


def count_worker_copies(optimizer: Any, *, workers: int) -> dict[str, int]:
    """Return how many copies of each variable its server stores for workers.

    The slot that worker 0 uses as its own is no copy: it is a variable of the optimizer.

    Args:
        optimizer: a built optimizer.
        workers: the number of workers whose gradients are applied separately; 0: none are.

    Returns:
        Path of a variable -> number of copies; variables without copies are left out.

    Example:

    >>> import keras
    >>> from tfps.optimizers import AsyncAdam
    >>> optimizer = AsyncAdam()
    >>> optimizer.build([keras.Variable([1.0], name="bias")])
    >>> count_worker_copies(optimizer, workers=8)
    {'bias': 7}
    """
    from tfps.optimizers.worker_state import WorkerStateMixin
    from tfps.optimizers.wrapped import get_leaf_optimizers

    copies: dict[str, int] = {}
    for leaf in get_leaf_optimizers(optimizer):
        has_copies = isinstance(leaf, WorkerStateMixin) and leaf.per_worker_slot is not None
        if has_copies and workers > 1:
            copies |= {variable.path: workers - 1 for variable in leaf._trainable_variables}
    return copies


def _refusals(optimizer: Any, forecast: Forecast) -> list[str]:
    from tfps.optimizers.by_shard import find_clip_problems, find_shard_problems

    trained = [
        place
        for shard, place in zip(forecast.variables, forecast.server_of_variable, strict=True)
        if shard.is_trained
    ]
    shards = _count_shards(forecast.variables)
    divided_ones = find_shard_problems(optimizer, count_shards=lambda v: shards.get(v.path, 1))
    clipped_ones = find_clip_problems(optimizer, count_servers=lambda _: len(set(trained)))
    # Only the first of each, as in a strategy: the others have the same reason.
    return [
        *(f"partitioner: {problem}" for problem in islice(divided_ones, 1)),
        *(f"training.optimizer: {problem}" for problem in islice(clipped_ones, 1)),
    ]


def _count_shards(wanted: Sequence[PlannedVariable]) -> Counter[str]:
    """Return the number of shards of each divided variable, by its path."""
    return Counter(shard.path.rpartition("/")[0] for shard in wanted if shard.is_trained)
