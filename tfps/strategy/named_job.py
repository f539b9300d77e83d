"""Open the job of a strategy: a new one, or a named one that the servers may have already."""

from __future__ import annotations

import os
import secrets
import weakref
from typing import Any

from tfps.cluster import ClusterSpec
from tfps.errors import ConfigError
from tfps.recovery.chief.job_record import JobRecord
from tfps.recovery.chief.succession import JobOnServers, NamedJob
from tfps.runtime.coordinator.connections import Connections
from tfps.runtime.coordinator.runtime import Runtime, get_container_name
from tfps.strategy.arguments import Arguments

JOB_VARIABLE = "TFPS_JOB_ID"

# The named jobs of this process, by name and servers: probing its own chief would prove nothing.
OPEN_JOBS: weakref.WeakValueDictionary[tuple[str, ...], Runtime] = weakref.WeakValueDictionary()


def job_name(arguments: Arguments) -> str:
    """Return the name of the strategy's job; empty for a job of this chief alone."""
    return arguments.job.name or os.environ.get(JOB_VARIABLE, "")


def open_job(arguments: Arguments, connections: Connections) -> tuple[Runtime, NamedJob | None]:
    """Create the job of a strategy, or take over the named job that the servers keep.

    Raises:
        ConfigError: the job is in use, or its properties differ from this strategy's.
        ChiefReplaced: another chief has taken the job over at the same moment.
    """
    spec, name = arguments.spec, job_name(arguments)
    options: dict[str, Any] = {
        "cluster": spec,
        "connections": connections,
        "placement": arguments.placement,
        "transport": arguments.transport,
        "mode": arguments.consistency,
        "compression": arguments.compression,
        "max_workers": arguments.max_workers,
    }
    if not name:
        return Runtime(job=secrets.token_hex(6), **options), None
    key = (name, *spec.jobs["ps"])
    before = OPEN_JOBS.get(key)
    if before is not None and not before.closed:
        raise ConfigError(
            f"job: {name!r} is in use by another strategy of this process; close that strategy "
            "first, or choose another name"
        )
    record = _make_record(arguments, spec)
    previous = JobOnServers(
        container=get_container_name(name), devices=connections.topology.servers
    )
    if arguments.job.fresh:
        previous.discard()
    held = None
    if previous.exists:
        previous.check(record, job=name)
        held = previous.split_slabs()
    runtime = OPEN_JOBS[key] = Runtime(job=name, held=held, **options)
    job = NamedJob(runtime, record, previous=previous)
    job.begin()
    runtime.on_layout_change, runtime.fence = job.write_record, job.refuse_if_replaced
    return runtime, job


def has_open_job() -> bool:
    """Return whether this process has a named job that is open."""
    return any(not runtime.closed for runtime in list(OPEN_JOBS.values()))


def _make_record(arguments: Arguments, spec: ClusterSpec) -> JobRecord:
    return JobRecord(
        chief=spec.address("chief", 0) if "chief" in spec.jobs else "",
        workers=arguments.max_workers,
        present=len(spec.jobs["worker"]),
        servers=len(spec.jobs["ps"]),
        consistency=str(arguments.consistency),
        bound_steps=arguments.consistency.bound_steps,
    )
