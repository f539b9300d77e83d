"""Reads how a task finds the scheduler, and which place it asks for. Imports no TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tfps.cluster.address import address_problem
from tfps.cluster.spec import TF_CONFIG
from tfps.cluster.validation import TASK_TYPES
from tfps.errors import refuse
from tfps.scheduler.own_address import read_own_address

SCHEDULER = "TFPS_SCHEDULER"
ROLE = "TFPS_ROLE"
INDEX = "TFPS_INDEX"
ADDRESS = "TFPS_ADDRESS"
VARIABLES = (SCHEDULER, ROLE, INDEX, ADDRESS)


@dataclass(frozen=True, kw_only=True)
class SchedulerSettings:
    """The scheduler of a task, and what the task asks it for.

    Args:
        scheduler: the address of the scheduler.
        role: the type of the task; None for a worker or a server.
        index: its index; None for any.
        host: the host under which the others reach it; None for the local end of its connection.
        port: the port; None for a free one.

    Example:

    >>> SchedulerSettings.from_environment({"TFPS_SCHEDULER": "a:7000", "TFPS_ADDRESS": "[::1]:5"})
    SchedulerSettings(scheduler='a:7000', role=None, index=None, host='::1', port=5)
    """

    scheduler: str
    role: str | None = None
    index: int | None = None
    host: str | None = None
    port: int | None = None

    @classmethod
    def from_environment(
        cls,
        environment: Mapping[str, str] | None = None,
        *,
        roles: Collection[str] = TASK_TYPES,
        program: str = "this program",
    ) -> SchedulerSettings | None:
        """Read ``TFPS_SCHEDULER`` and the variables beside it; None if none of them is set.

        Args:
            environment: used instead of ``os.environ``.
            roles: the types of tasks that the program can be; a lone one is the default.
            program: the program, for messages.

        Raises:
            ConfigError: names every mistake, each with its variable.
        """
        variables = os.environ if environment is None else environment
        given = {name: text for name in VARIABLES if (text := variables.get(name, "").strip())}
        if not given:
            return None
        role, index, address = (given.get(name) for name in (ROLE, INDEX, ADDRESS))
        host, port, address_text = None, None, None
        try:
            host, port = (None, None) if address is None else read_own_address(address)
        except ValueError as error:
            address_text = str(error)
        problems = {
            SCHEDULER: _scheduler_problem(given.get(SCHEDULER)),
            TF_CONFIG: f"received it beside {SCHEDULER}; unset one of both"
            if SCHEDULER in given and variables.get(TF_CONFIG, "").strip()
            else None,
            ROLE: f"received {role!r}, expected {' or '.join(roles)}, which {program} can be"
            if role is not None and role not in roles
            else None,
            INDEX: _index_problem(index, has_role=role is not None or len(roles) == 1),
            ADDRESS: address_text,
        }
        refuse([f"{name}: {problem}" for name, problem in problems.items() if problem])
        return cls(
            scheduler=given[SCHEDULER],
            role=next(iter(roles)) if role is None and len(roles) == 1 else role,
            index=None if index is None else int(index),
            host=host,
            port=port,
        )


def has_cluster() -> bool:
    """Return whether the environment has `TF_CONFIG`, or variables of a scheduler."""
    return any(os.environ.get(name, "").strip() for name in (TF_CONFIG, *VARIABLES))


def _scheduler_problem(address: str | None) -> str | None:
    if address is None:
        return f"missing; set it (--scheduler HOST:PORT) beside {ROLE}, {INDEX} and {ADDRESS}"
    return address_problem(address)


def _index_problem(index: str | None, *, has_role: bool) -> str | None:
    if index is None:
        return None
    if not (index.isascii() and index.isdigit()):
        return f"received {index!r}, expected a whole number from 0"
    return None if has_role else f"received {index} without a role; set {ROLE} (--role) as well"
