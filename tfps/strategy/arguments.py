"""The arguments of `ParameterServerStrategy`, checked together before anything starts."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from tfps.cluster import ClusterSpec
from tfps.compression import directions
from tfps.consistency import modes
from tfps.consistency.mode import Mode
from tfps.errors import ConfigError, TfpsError, UnsupportedError, refuse
from tfps.partitioners import Partitioner
from tfps.placement import policy
from tfps.recovery.fault_tolerance import FaultTolerance, check_fault_tolerance
from tfps.scheduler.client import join_cluster, present_cluster
from tfps.scheduler.settings import SCHEDULER
from tfps.strategy.cluster_size import ClusterSize, size_problems
from tfps.strategy.codec_limits import codec_problems
from tfps.strategy.environment import connect_timeout_s, environment_errors
from tfps.strategy.job import Job, check_job, max_workers_problem
from tfps.strategy.mirror_limits import mirror_problems
from tfps.training.batch_callbacks import check_setting
from tfps.transport.setting import wanted_transport

Function = TypeVar("Function", bound=Callable[..., Any])

RENAMED_ARGUMENTS = {
    "recovery": "fault_tolerance=tfps.FaultTolerance(checkpoints=<folder>, every_steps=...)",
    "restarts": "fault_tolerance=tfps.FaultTolerance(restart_budget=..., min_workers=...)",
    "fresh": 'job=tfps.Job("name", fresh=True)',
}


def refuse_renamed_arguments(function: Function) -> Function:
    """Return a constructor whose error for a removed argument names its replacement."""

    @functools.wraps(function)
    def check_and_collect(*args: Any, **kwargs: Any) -> Any:
        problems = [
            f"{old}: write {RENAMED_ARGUMENTS[old]}" for old in RENAMED_ARGUMENTS if old in kwargs
        ]
        refuse(problems, source="ParameterServerStrategy")
        return function(*args, **kwargs)

    return cast("Function", check_and_collect)


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The arguments of a strategy, checked and with their defaults filled in.

    Args:
        spec: the cluster, from the resolver or from ``TF_CONFIG``.
        placement: the policy that chooses a variable's server.
        consistency: the mode: when a server applies a gradient.
        compression: the codecs of gradients and of parameters.
        transport: ``"auto"``, ``"direct"`` or ``"grpc"``.
        batch_callbacks: whether batch hooks see sampled batches.
        fault_tolerance: how many workers the job needs, and how lost servers are handled.
        connect_timeout_s: the seconds to wait for the other tasks.
        job: the name under which the servers keep the strategy's variables.
        max_workers: the most workers that can take part.
    """

    spec: ClusterSpec
    placement: policy.Placement
    consistency: Mode
    compression: directions.PushPull
    transport: str
    batch_callbacks: str
    fault_tolerance: FaultTolerance
    connect_timeout_s: float
    job: Job
    max_workers: int


# The checks of single arguments; the others also depend on the cluster.
CHECK_OF_ARGUMENT: dict[str, Callable[[Any], Any]] = {
    "placement": policy.resolve,
    "consistency": modes.resolve,
    "compression": directions.resolve,
    "transport": wanted_transport,
    "batch_callbacks": check_setting,
    "job": check_job,
}


def check_arguments(*, cluster_resolver: Any, variable_partitioner: Any, **given: Any) -> Arguments:
    """Check the arguments of `ParameterServerStrategy`, which describes them.

    Raises:
        ConfigError: arguments are invalid; names every mistake, with its argument.
        UnsupportedError: the only mistake is an option that this version does not have.
    """
    errors: list[TfpsError] = []

    def check_and_collect(check: Callable[[Any], Any], value: Any) -> Any:
        try:
            return check(value)
        except (ConfigError, UnsupportedError) as error:
            errors.append(error)
            return None

    check_and_collect(_check_partitioner, variable_partitioner)
    values = {
        name: check_and_collect(check, given.get(name)) for name, check in CHECK_OF_ARGUMENT.items()
    }
    codecs, mode = values["compression"], values["consistency"]
    # Not after a mistake: it may wait for the other tasks for minutes.
    is_waiting = cluster_resolver is None and bool(os.environ.get(SCHEDULER))
    spec: Any = None
    if not (errors and is_waiting):
        spec = check_and_collect(_check_cluster, cluster_resolver)
    workers = None if spec is None else spec.count("worker")
    values["max_workers"] = check_and_collect(
        lambda value: _check_max_workers(value, workers=workers), given.get("max_workers")
    )
    values["fault_tolerance"] = check_and_collect(
        lambda value: check_fault_tolerance(value, workers=workers), given.get("fault_tolerance")
    )
    if codecs is not None and mode is not None:
        errors += [UnsupportedError(problem) for problem in codec_problems(codecs, mode)]
    if not errors:
        job, tolerance = values["job"], values["fault_tolerance"]
        problems = mirror_problems(
            values["placement"],
            mode=mode,
            compression=codecs,
            transport=values["transport"],
            keeps_servers=job.name is not None or tolerance.checkpoints is not None,
        )
        errors += [UnsupportedError(problem) for problem in problems]
    errors += [error for error in environment_errors() if str(error) not in map(str, errors)]
    if spec is not None:
        problems = size_problems(
            mode=mode, placement=values["placement"], size=ClusterSize.from_spec(spec)
        )
        errors += [ConfigError(problem) for problem in problems]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        problems = [problem for error in errors for problem in _problems_with_source(error)]
        raise ConfigError(problems, source="ParameterServerStrategy")
    return Arguments(spec=spec, connect_timeout_s=connect_timeout_s(), **values)


def _check_cluster(resolver: Any) -> ClusterSpec:
    if resolver is None:
        join_cluster(roles=("chief",), program="a script with a strategy")
        return present_cluster(ClusterSpec.from_environment())
    if not callable(getattr(resolver, "cluster_spec", None)):
        raise ConfigError(
            f"cluster_resolver: received {resolver!r}, expected a "
            "tf.distribute.cluster_resolver.ClusterResolver (for a LocalCluster its attribute "
            ".cluster_resolver), or None to read TF_CONFIG"
        )
    return ClusterSpec.from_resolver(resolver)


def _check_partitioner(partitioner: Any) -> None:
    is_ours = isinstance(partitioner, Partitioner) and not isinstance(partitioner, type)
    if partitioner is not None and not is_ours and not callable(partitioner):
        raise ConfigError(
            f"variable_partitioner: received {partitioner!r}, expected a partitioner of "
            "tfps.partitioners or tf.distribute.experimental.partitioners, or None to keep "
            "variables whole"
        )


def _check_max_workers(max_workers: Any, *, workers: int | None) -> int | None:
    if problem := max_workers_problem(max_workers, workers=workers):
        raise ConfigError(f"max_workers: {problem}")
    return workers if max_workers is None else int(max_workers)


def _problems_with_source(error: TfpsError) -> list[str]:
    if not isinstance(error, ConfigError):
        return [str(error)]
    return [
        f"{part.source}: {problem}" if part.source else problem
        for part in error.parts
        for problem in part.problems
    ]
