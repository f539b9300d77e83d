"""The interface by which a process other than the chief reads a job on one server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tfps.recovery.chief.job_record import JobRecord

Array = np.ndarray[Any, Any]


class RecordChanged(Exception):
    """Raised if variables have moved, or another chief has begun, since the record was read."""


class ServerReader(Protocol):
    """Reads one server of a job."""

    def record(self, *, patience_s: float) -> JobRecord | None:
        """Return the record that the job's chief has written; None if there is no such job.

        Raises:
            tf.errors.UnavailableError: the server does not reply.
        """

    def read(
        self, record: JobRecord, resources: Sequence[str], *, patience_s: float
    ) -> tuple[Array, list[Array]]:
        """Return the ledger and the values of variables, all of one moment.

        Args:
            record: the newest record that `record` has returned.
            resources: the variables' resource names, from its views.
            patience_s: the seconds that the server may take.

        Raises:
            RecordChanged: the server has another record now.
            tf.errors.UnavailableError: the server does not reply, or a variable does not exist.
        """

    def renew(self) -> None:
        """Connect again to a server that may have been restarted."""

    def close(self) -> None:
        """Close the connection."""
