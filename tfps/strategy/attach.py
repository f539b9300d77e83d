"""`tfps.attach`: reads a running job from a process that takes no part in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from tfps.cluster import ClusterSpec
from tfps.cluster.address import address_problem
from tfps.cluster.topology import Topology
from tfps.cluster.waiting import connection_problem
from tfps.errors import ConfigError, ConnectTimeout
from tfps.runtime.coordinator.connections import ControlLine
from tfps.runtime.coordinator.control_plane import ControlPlane, NoSuchFunction
from tfps.runtime.coordinator.runtime import number_of
from tfps.strategy.attachment import Attachment, NoSuchJob
from tfps.strategy.job_name import is_job_name
from tfps.transport import tokens
from tfps.transport.direct import SECRET_VARIABLE, fingerprint, secret_from_environment

LONGEST_ATTEMPT_S = 60.0  # a large model takes a slow network as long


def attach(
    job: str,
    addresses: Sequence[str] | tf.distribute.cluster_resolver.ClusterResolver | None = None,
    *,
    secret: str | bytes | None = None,
    timeout_s: float = 30.0,
) -> Attachment:
    """Read a running job's weights and counters, in a process that takes no part in it.

    For a notebook, an evaluator or a monitor, while the job trains or after its chief has died. All
    it needs are the servers: this process connects TensorFlow to no cluster and has no model.

    Args:
        job: the name that its chief has given: ``ParameterServerStrategy(job=...)``, or
            ``TFPS_JOB_ID``.
        addresses: ``host:port`` of the parameter servers, in the order of ``TF_CONFIG``; or a
            cluster resolver; None reads ``TF_CONFIG``.
        secret: that of the servers' ``TFPS_JOB_SECRET``; None reads this process's environment. It
            is compared, and not sent.
        timeout_s: how long the servers may take, for this and for each call later.

    Raises:
        ConfigError: these servers have no such job, or another secret; or a wrong argument.
        ConnectTimeout: a server that does not answer.

    Example:

    ```python
    with tfps.attach("night", ["10.0.0.7:2222", "10.0.0.8:2222"]) as job:
        values, version = job.pull(["dense/kernel"])
        print(job.stats().updates_applied)
    ```
    """
    problems = [] if is_job_name(job) else [f"job: received {job!r}, expected the name of a job"]
    if not (isinstance(timeout_s, int | float) and 0 < timeout_s < math.inf):
        problems.append(f"timeout_s: received {timeout_s!r}, expected seconds above 0")
    if not (secret is None or (isinstance(secret, str | bytes) and secret)):
        problems.append("secret: received neither a text that says something nor None")
    brought = getattr(addresses, "tfps_connections", None)  # of `tfps.testing.OneProcess`
    servers = [] if brought is not None else _servers(addresses, problems)
    if problems:
        raise ConfigError(problems, source="tfps.attach")
    lines: list[ControlLine]
    if brought is not None:
        lines = [brought.control(("ps", k)) for k, _ in enumerate(brought.topology.servers)]
    else:
        _check_reachable(servers, timeout_s=timeout_s)
        devices = Topology.of_tasks(workers=0, servers=len(servers)).servers
        lines = [
            ControlPlane(
                address=partial(servers.__getitem__, index),
                device=device,
                longest_attempt_s=LONGEST_ATTEMPT_S,
            )
            for index, device in enumerate(devices)
        ]
    try:
        _check_secret(_as_given(secret), lines, job=job, timeout_s=timeout_s)
        return Attachment(job, lines, timeout_s=timeout_s)
    except BaseException as error:
        for line in lines:
            line.close(answering=not isinstance(error, tf.errors.OpError))
        if isinstance(error, NoSuchJob):
            raise ConfigError(
                f"job: the servers hold no job {job!r}. Look whether the chief that names it so "
                f"has begun (ParameterServerStrategy(job={job!r})), and has not closed it"
            ) from error
        if isinstance(error, tf.errors.UnavailableError):
            raise ConnectTimeout(f"{error.message} {ORDER}") from error
        raise


ORDER = (
    "Give the addresses of all parameter servers in the order of TF_CONFIG (cluster.ps), and look "
    "whether they run, and whether this machine may reach them."
)


def _servers(addresses: Any, problems: list[str]) -> list[str]:
    if isinstance(addresses, str):
        problems.append(
            f"addresses: received {addresses!r}, expected a list of texts: [{addresses!r}]"
        )
        return []
    if isinstance(addresses, Sequence):
        if not addresses:
            problems.append("addresses: received none, expected those of the parameter servers")
        found = [address_problem(address) for address in addresses]
        problems += [f"addresses: {problem}" for problem in found if problem is not None]
        return list(addresses)
    try:
        if addresses is None:
            return list(ClusterSpec.from_environment().jobs["ps"])
        if callable(getattr(addresses, "cluster_spec", None)):
            return list(ClusterSpec.from_resolver(addresses).jobs["ps"])
    except ConfigError as error:
        problems += [f"addresses: {problem}" for problem in error.problems]
        return []
    problems.append(
        f"addresses: received {addresses!r}, expected a list of 'host:port', a cluster resolver, "
        "or None to read TF_CONFIG"
    )
    return []


def _check_reachable(servers: Sequence[str], *, timeout_s: float) -> None:
    reasons = [(address, connection_problem(address, timeout_s=timeout_s)) for address in servers]
    problems = [
        f"ps {index} at {address}: {reason}"
        for index, (address, reason) in enumerate(reasons)
        if reason is not None
    ]
    if problems:
        raise ConnectTimeout(f"{'; '.join(problems)}. {ORDER}")


def _as_given(secret: str | bytes | None) -> bytes | None:
    if secret is None:
        return secret_from_environment()
    return (secret.encode() if isinstance(secret, str) else secret).strip()


def _check_secret(
    secret: bytes | None, lines: Sequence[ControlLine], *, job: str, timeout_s: float
) -> None:
    number = number_of(job)
    own = fingerprint(secret, job=number)
    for index, line in enumerate(lines):
        try:
            theirs = line.ask(tokens.FINGERPRINT, number, patience_s=timeout_s)
        except NoSuchFunction:  # a plain server knows no secret
            continue
        if theirs != own:
            has = "have another one" if theirs else "have none"
            received = "none" if secret is None else "one"
            raise ConfigError(
                f"secret: received {received}, but the servers {has} (ps {index}). Give what "
                f"they were started with: secret=..., or {SECRET_VARIABLE} of this process",
                source="tfps.attach",
            )
