"""`tfps.attach`: reads a running job from another process."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from functools import partial

import tensorflow as tf

from tfps.cluster.proxies import exclude_from_proxies
from tfps.cluster.topology import Topology
from tfps.cluster.waiting import connection_problem
from tfps.errors import ConfigError, ConnectTimeout, refuse
from tfps.recovery.reading.channel_reader import ChannelReader
from tfps.runtime.coordinator.connections import ControlChannel
from tfps.runtime.coordinator.control_plane import ControlPlane, NoSuchFunction
from tfps.runtime.coordinator.runtime import compute_job_id, get_container_name
from tfps.strategy.job import is_job_name
from tfps.strategy.reading.attachment import Attachment, NoSuchJob
from tfps.strategy.reading.server_addresses import (
    ask_scheduler,
    scheduler_problems,
    server_addresses,
)
from tfps.transport import tokens
from tfps.transport.direct import SECRET_VARIABLE, fingerprint, secret_from_environment

LONGEST_ATTEMPT_S = 60.0  # enough for a large model on a slow network


def attach(
    job: str,
    addresses: Sequence[str] | tf.distribute.cluster_resolver.ClusterResolver | None = None,
    *,
    scheduler: str | None = None,
    secret: str | bytes | None = None,
    timeout_s: float = 30.0,
) -> Attachment:
    """Open a running job, to read its weights and counters from another process.

    Use it in a notebook, an evaluator or a monitor, while the job trains or after its chief has
    died. It only needs the servers: this process needs no TensorFlow cluster and no model.

    Args:
        job: the job's name: ``ParameterServerStrategy(job=...)``, or ``TFPS_JOB_ID`` of its chief.
        addresses: ``host:port`` of the parameter servers, in the order of ``TF_CONFIG``; or a
            cluster resolver; None reads ``TF_CONFIG``.
        scheduler: ``host:port`` of the job's `tfps scheduler`, which is asked for the addresses.
        secret: the servers' ``TFPS_JOB_SECRET``; None reads this process's environment. It is
            compared or proved, and not sent.
        timeout_s: the seconds that the servers may take, for this and for each later call.

    Returns:
        A `tfps.Attachment`; its methods `pull` and `stats` read, leaving its ``with`` block
        disconnects.

    Raises:
        ConfigError: these servers have no such job, or another secret; or an argument is invalid.
        ConnectTimeout: a server does not reply.

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
        problems.append(
            "secret: received an empty or invalid secret, expected a string, bytes or None"
        )
    simulated = getattr(addresses, "tfps_connections", None)  # of `tfps.testing.InProcessCluster`
    servers: list[str] = []
    if scheduler is not None:
        problems += scheduler_problems(scheduler, addresses)
    elif simulated is None:
        servers = server_addresses(addresses, problems)
    refuse(problems, source="tfps.attach")
    if scheduler is not None:
        servers = ask_scheduler(scheduler, secret=_secret_bytes(secret), timeout_s=timeout_s)
    channels: list[ControlChannel]
    if simulated is not None:
        channels = [
            simulated.open_channel(("ps", k)) for k, _ in enumerate(simulated.topology.servers)
        ]
    else:
        exclude_from_proxies(servers)
        _check_reachable(servers, timeout_s=timeout_s)
        devices = Topology.of_tasks(workers=0, servers=len(servers)).servers
        channels = [
            ControlPlane(
                address=partial(servers.__getitem__, index),
                device=device,
                longest_attempt_s=LONGEST_ATTEMPT_S,
            )
            for index, device in enumerate(devices)
        ]
    try:
        with _translate_errors(job):
            _compare_secret(_secret_bytes(secret), channels, job=job, timeout_s=timeout_s)
            readers = [
                ChannelReader(channel, container=get_container_name(job)) for channel in channels
            ]
            return Attachment(job, readers, timeout_s=timeout_s)
    except BaseException as error:
        for channel in channels:
            channel.close(is_responding=not isinstance(error, ConnectTimeout | tf.errors.OpError))
        raise


@contextlib.contextmanager
def _translate_errors(job: str) -> Iterator[None]:
    """Within the block, replace servers' errors by errors that tell the user what to do."""
    try:
        yield
    except NoSuchJob as error:
        raise ConfigError(
            f"job: the servers hold no job {job!r}; check that its chief has started with "
            f"ParameterServerStrategy(job={job!r}) and is still running"
        ) from error
    except tf.errors.UnavailableError as error:
        raise ConnectTimeout(f"{error.message} {ADDRESS_ADVICE}") from error


ADDRESS_ADVICE = (
    "Give the addresses of all parameter servers in the order of TF_CONFIG (cluster.ps), and "
    "check that they run and that this machine can reach them."
)


def _check_reachable(servers: Sequence[str], *, timeout_s: float) -> None:
    reasons = [(address, connection_problem(address, timeout_s=timeout_s)) for address in servers]
    problems = [
        f"ps {index} at {address}: {reason}"
        for index, (address, reason) in enumerate(reasons)
        if reason is not None
    ]
    if problems:
        raise ConnectTimeout(f"{'; '.join(problems)}. {ADDRESS_ADVICE}")


def _secret_bytes(secret: str | bytes | None) -> bytes | None:
    if secret is None:
        return secret_from_environment()
    return (secret.encode() if isinstance(secret, str) else secret).strip()


def _compare_secret(
    secret: bytes | None, channels: Sequence[ControlChannel], *, job: str, timeout_s: float
) -> None:
    number = compute_job_id(job)
    own = fingerprint(secret, job=number)
    for index, channel in enumerate(channels):
        try:
            theirs = channel.ask(tokens.FINGERPRINT, number, patience_s=timeout_s)
        except NoSuchFunction:  # a plain server knows no secret
            continue
        if theirs != own:
            has = "have another one" if theirs else "have none"
            received = "none" if secret is None else "one"
            raise ConfigError(
                f"secret: received {received}, but the servers {has} (ps {index}); pass the "
                f"servers' secret with secret=..., or set {SECRET_VARIABLE} in this process",
                source="tfps.attach",
            )
