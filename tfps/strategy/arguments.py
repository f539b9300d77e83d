"""What `ParameterServerStrategy` is given, checked as a whole before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfps.cluster import ClusterSpec
from tfps.compression import directions
from tfps.consistency import modes
from tfps.consistency.mode import Mode
from tfps.errors import ConfigError, TfpsError, UnsupportedError
from tfps.partitioners import Partitioner
from tfps.placement import policy
from tfps.recovery.recovery import Recovery
from tfps.recovery.restarts.restarts import Restarts, check_restarts
from tfps.strategy.cluster_size import ClusterSize, size_problems
from tfps.strategy.codec_limits import codec_problems
from tfps.strategy.environment import connect_timeout_s, environment_errors
from tfps.strategy.job_name import name_problem, room_problem
from tfps.training.batch_callbacks import check_setting
from tfps.transport.setting import wanted_transport


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The strategy's arguments, each a value that it can work with.

    Args:
        spec: the cluster, from the resolver or from ``TF_CONFIG``.
        placement: which server takes a variable.
        consistency: when a server applies a gradient.
        compression: which codecs gradients and parameters go through.
        transport: ``"auto"``, ``"direct"`` or ``"grpc"``.
        batch_callbacks: whether batch hooks see sampled batches.
        restarts: when the job ends for want of workers.
        connect_timeout_s: how long to wait for the other tasks.
        job: what the servers call what they hold for this strategy; None is a name of its own.
        fresh: discard what they hold below that name.
        max_workers: for how many workers there is room.
    """

    spec: ClusterSpec
    placement: policy.Placement
    consistency: Mode
    compression: directions.Both
    transport: str
    batch_callbacks: str
    restarts: Restarts
    connect_timeout_s: float
    job: str | None
    fresh: bool
    max_workers: int


def check_arguments(  # noqa: PLR0913 - those of the strategy
    *,
    cluster_resolver: Any,
    variable_partitioner: Any,
    placement: Any,
    consistency: Any,
    compression: Any,
    transport: Any,
    batch_callbacks: Any,
    restarts: Any,
    recovery: Any,
    job: Any = None,
    fresh: Any = False,
    max_workers: Any = None,
) -> Arguments:
    """Check the arguments of `ParameterServerStrategy`, which describes them.

    Raises:
        ConfigError: everything that is wrong, at once, each with its argument's name.
        UnsupportedError: nothing but an option that this version does not have.
    """
    errors: list[TfpsError] = []

    def checked(check: Callable[[Any], Any], value: Any) -> Any:
        try:
            return check(value)
        except (ConfigError, UnsupportedError) as error:
            errors.append(error)
            return None

    checked(_check_partitioner, variable_partitioner)
    codecs = checked(directions.resolve, compression)
    policy_ = checked(policy.resolve, placement)
    mode = checked(modes.resolve, consistency)
    carrier = checked(wanted_transport, transport)
    setting = checked(check_setting, batch_callbacks)
    checked(_check_job, (job, fresh))
    spec = checked(_check_cluster, cluster_resolver)
    checked(check_recovery, recovery)
    workers = None if spec is None else spec.count("worker")
    capacity = checked(lambda given: _check_room(given, workers=workers), max_workers)
    chosen = checked(lambda given: check_restarts(given, workers=workers), restarts)
    if codecs is not None and mode is not None:
        errors += [UnsupportedError(problem) for problem in codec_problems(codecs, mode)]
    errors += environment_errors()
    if spec is not None:
        problems = size_problems(mode=mode, placement=policy_, size=ClusterSize.of(spec))
        errors += [ConfigError(problem) for problem in problems]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        problems = [problem for error in errors for problem in _problems(error)]
        raise ConfigError(problems, source="ParameterServerStrategy")
    return Arguments(
        spec=spec,
        placement=policy_,
        consistency=mode,
        compression=codecs,
        transport=carrier,
        batch_callbacks=setting,
        restarts=chosen,
        connect_timeout_s=connect_timeout_s(),
        job=job,
        fresh=fresh,
        max_workers=capacity,
    )


def check_recovery(recovery: Any, *, before: Recovery | None = None) -> None:
    """Refuse what is no recovery, and another one than there is.

    Raises:
        ConfigError: either.
    """
    if recovery is not None and not isinstance(recovery, Recovery):
        raise ConfigError(f"recovery: received {recovery!r}, expected a tfps.Recovery, or None")
    if before is not None and recovery != before:
        raise ConfigError(
            f"recovery: received {recovery!r}, but this strategy has {before!r} already, which "
            "stays as long as the strategy"
        )


def _check_cluster(resolver: Any) -> ClusterSpec:
    if resolver is None:
        return ClusterSpec.from_environment()
    if not callable(getattr(resolver, "cluster_spec", None)):
        raise ConfigError(
            f"cluster_resolver: received {resolver!r}, expected a "
            "tf.distribute.cluster_resolver.ClusterResolver (a LocalCluster has one: "
            ".cluster_resolver), or None to read TF_CONFIG"
        )
    return ClusterSpec.from_resolver(resolver)


def _check_partitioner(partitioner: Any) -> None:
    is_ours = isinstance(partitioner, Partitioner) and not isinstance(partitioner, type)
    if partitioner is not None and not is_ours and not callable(partitioner):
        raise ConfigError(
            f"variable_partitioner: received {partitioner!r}, expected a partitioner of "
            "tf.distribute.experimental.partitioners, or None to split nothing"
        )


def _check_room(max_workers: Any, *, workers: int | None) -> int | None:
    if problem := room_problem(max_workers, workers=workers):
        raise ConfigError(f"max_workers: {problem}")
    return workers if max_workers is None else int(max_workers)


def _check_job(received: tuple[Any, Any]) -> None:
    job, fresh = received
    problems = []
    if problem := name_problem(job):
        problems.append(f"job: {problem}")
    if not isinstance(fresh, bool):
        problems.append(f"fresh: received {fresh!r}, expected True or False")
    if problems:
        raise ConfigError(problems)


def _problems(error: TfpsError) -> list[str]:
    if not isinstance(error, ConfigError):
        return [str(error)]
    return [
        f"{part.source}: {problem}" if part.source else problem
        for part in error.parts
        for problem in part.problems
    ]
