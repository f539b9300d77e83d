"""What reads a job on one server, from a process that is not its chief."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tfps.recovery.chief.job_record import JobRecord

Array = np.ndarray[Any, Any]


class RecordChanged(Exception):
    """Variables have moved, or another chief has begun, since the record was read."""


class ServerReader(Protocol):
    """One server of a job, for who only reads."""

    def record(self, *, patience_s: float) -> JobRecord | None:
        """What the job's chief has written down there; None where there is no such job.

        Raises:
            tf.errors.UnavailableError: the server does not answer.
        """

    def read(
        self, record: JobRecord, resources: Sequence[str], *, patience_s: float
    ) -> tuple[Array, list[Array]]:
        """The ledger, and variables by their resources' names, of one moment.

        Args:
            record: the newest that `record` has answered.
            resources: some of its views.
            patience_s: how long a server may take.

        Raises:
            RecordChanged: the record is another one by now.
            tf.errors.UnavailableError: the server does not answer, or something is not there.
        """

    def renew(self) -> None:
        """Call a server that may have been started anew."""

    def close(self) -> None:
        """Let the server go."""
