"""The environment variables that a strategy and its tasks read, checked before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfps.bridge.private_names import untested_is_allowed
from tfps.cluster import logical_cpus, timeout_from_environment
from tfps.cluster.timeout import CONNECT_TIMEOUT_VARIABLE
from tfps.cluster.waiting import CONNECT_TIMEOUT_S
from tfps.errors import ConfigError
from tfps.observe.recorder import find_record_folder
from tfps.recovery.probing.liveness import ProbePolicy
from tfps.scheduler.settings import SchedulerSettings
from tfps.transport.chunk import chunk_bytes_from_environment
from tfps.transport.direct import encryption_from_environment, secret_from_environment


def connect_timeout_s() -> float:
    """Return how many seconds a strategy waits for the other tasks.

    Raises:
        ConfigError: ``TFPS_CONNECT_TIMEOUT_S`` is not a valid number.
    """
    return timeout_from_environment(CONNECT_TIMEOUT_VARIABLE, default_s=CONNECT_TIMEOUT_S)


READERS: tuple[Callable[[], Any], ...] = (
    connect_timeout_s,
    ProbePolicy.from_environment,
    secret_from_environment,
    encryption_from_environment,
    chunk_bytes_from_environment,
    logical_cpus,
    SchedulerSettings.from_environment,
    untested_is_allowed,
    find_record_folder,
)


def environment_errors() -> list[ConfigError]:
    """Return an error for each environment variable with an invalid value."""
    errors = []
    for read in READERS:
        try:
            read()
        except ConfigError as error:
            errors.append(error)
    return errors
