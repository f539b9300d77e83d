"""What `ParameterServerStrategy` is given, checked as a whole before anything starts."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfps.cluster import ClusterSpec, timeout_from_environment
from tfps.cluster.waiting import CONNECT_TIMEOUT_S
from tfps.consistency import modes
from tfps.consistency.synchronous import backup_problem
from tfps.errors import ConfigError, TfpsError, UnsupportedError
from tfps.partitioners import Partitioner
from tfps.placement import policy
from tfps.runtime.data_plane import TRANSPORTS
from tfps.training.batch_callbacks import check_setting

CONNECT_TIMEOUT_VARIABLE = "TFPS_CONNECT_TIMEOUT_S"
# What "auto" means in this process: one job, or a whole test suite, on another carrier.
TRANSPORT_VARIABLE = "TFPS_TRANSPORT"


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The strategy's arguments, each a value that it can work with.

    Args:
        spec: the cluster, from the resolver or from ``TF_CONFIG``.
        placement: which server takes a variable.
        consistency: when a server applies a gradient.
        transport: ``"auto"``, ``"direct"`` or ``"grpc"``.
        batch_callbacks: whether batch hooks see sampled batches.
        connect_timeout_s: how long to wait for the other tasks.
    """

    spec: ClusterSpec
    placement: policy.Placement
    consistency: modes.Mode
    transport: str
    batch_callbacks: str
    connect_timeout_s: float


def check_arguments(
    *,
    cluster_resolver: Any,
    variable_partitioner: Any,
    placement: Any,
    consistency: Any,
    compression: Any,
    transport: Any,
    batch_callbacks: Any,
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
    checked(_check_compression, compression)
    arguments = Arguments(
        placement=checked(policy.resolve, placement),
        consistency=checked(modes.resolve, consistency),
        transport=checked(_check_transport, transport),
        batch_callbacks=checked(check_setting, batch_callbacks),
        spec=checked(_check_cluster, cluster_resolver),
        connect_timeout_s=checked(_check_timeout, CONNECT_TIMEOUT_S),
    )
    if arguments.consistency is not None and arguments.spec is not None:
        checked(_check_backup(arguments.spec.count("worker")), arguments.consistency)
    if arguments.placement is not None and arguments.spec is not None:
        checked(_check_servers(arguments.spec.count("ps")), arguments.placement)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        problems = [problem for error in errors for problem in _problems(error)]
        raise ConfigError(problems, source="ParameterServerStrategy")
    return arguments


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


def _check_backup(workers: int) -> Callable[[modes.Mode], None]:
    """A check that rounds wait for somebody."""

    def check(mode: modes.Mode) -> None:
        problem = backup_problem(mode.backup_workers, workers=workers)
        if problem:
            raise ConfigError(f"consistency: {problem}")

    return check


def _check_servers(servers: int) -> Callable[[policy.Placement], None]:
    """A check that a policy names no server that is not there."""

    def check(placement: policy.Placement) -> None:
        problems = policy.server_problems(placement, servers=servers)
        if problems:
            raise ConfigError(problems)

    return check


def _check_compression(compression: Any) -> None:
    if compression is not None:
        raise UnsupportedError(
            f"compression: received {compression!r}, expected None: this version sends gradients "
            "as they are; leave the argument out"
        )


def _check_transport(transport: Any) -> str:
    choices = ", ".join(repr(name) for name in TRANSPORTS)
    if transport not in TRANSPORTS:
        raise ConfigError(f"transport: received {transport!r}, expected one of {choices}")
    if transport != "auto":
        return str(transport)
    wanted = os.environ.get(TRANSPORT_VARIABLE, "").strip() or "auto"
    if wanted not in TRANSPORTS:
        raise ConfigError(
            f"received {wanted!r}, expected one of {choices}, or nothing",
            source=TRANSPORT_VARIABLE,
        )
    return wanted


def _check_timeout(default_s: float) -> float:
    return timeout_from_environment(CONNECT_TIMEOUT_VARIABLE, default_s=default_s)


def _problems(error: TfpsError) -> list[str]:
    if not isinstance(error, ConfigError):
        return [str(error)]
    prefix = f"{error.source}: " if error.source else ""
    return [f"{prefix}{problem}" for problem in error.problems]
