"""Reads the weights and counters of a running job."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from tfps.checkpoint.parallel import run_in_parallel
from tfps.consistency.ledger import LedgerLayout
from tfps.errors import ConfigError, StrategyClosed
from tfps.recovery.chief.job_record import JobRecord
from tfps.recovery.reading.channel_reader import ChannelReader, RecordChanged
from tfps.recovery.reading.recorded_values import RecordedValue, find_recorded_values
from tfps.strategy.reading.stats import JobStats, job_stats
from tfps.transport.message import PROTOCOL

Result = TypeVar("Result")
Array = np.ndarray[Any, Any]

RETRY_PAUSE_S = 0.2  # between two attempts
MAX_REPLY_BYTES = (1 << 31) - (1 << 20)  # of one reply of TensorFlow


class NoSuchJob(Exception):
    """Raised if a server has no record of the job."""


class Attachment:
    """A connection that reads a running job's weights and counters; `tfps.attach` returns it.

    Use it to watch or evaluate a job from another process. It only reads from the servers: workers
    and chief are not disturbed, nothing is written, and the job may end or get another chief
    meanwhile. It is a context manager.

    Args:
        job: the job's name.
        readers: the reader of each server, in the servers' order.
        timeout_s: the seconds that all servers together may take for a call.

    Example:

    ```python
    with tfps.attach("night", ["10.0.0.7:2222"]) as job:
        values, version = job.pull(["dense/kernel"])
        print(job.stats().updates_applied)
    ```
    """

    def __init__(self, job: str, readers: Sequence[ChannelReader], *, timeout_s: float) -> None:
        self.job, self._readers, self._timeout_s = job, readers, timeout_s
        self._closed = False
        self._read_records(timeout_s)

    @property
    def names(self) -> list[str]:
        """The paths of all variables that can be pulled: weights, optimizer slots and others."""
        self._retry_until_timeout(self._read_records)
        return list(self._values)

    def pull(self, names: Sequence[str] | None = None) -> tuple[dict[str, Array], Array]:
        """Read the present values of variables.

        The values of one server are of one moment. While the job trains, two servers may differ by
        some updates, as their versions show.

        Args:
            names: the paths of variables, as `names` lists them; None reads all.

        Returns:
            The values by name, as arrays of the variables' shapes and dtypes; and each server's
            version, the number of updates that it has applied (int64, shape ``[servers]``).

        Raises:
            ConfigError: the job does not have a name, or one server would send more than 2 GB.
            StrategyClosed: the job has ended, or this attachment was closed.
            tf.errors.UnavailableError: a server does not reply within ``timeout_s``.
        """

        def pull(patience_s: float) -> tuple[dict[str, Array], Array]:
            chosen = self._select_values(names, patience_s)
            cells, values_found = self._read(chosen, patience_s)
            values = {
                name: value.join([values_found[part.server, part.resource] for part in value.parts])
                for name, value in chosen.items()
            }
            return values, np.array([each[self._layout.VERSION] for each in cells])

        return self._retry_until_timeout(pull)

    def stats(self) -> JobStats:
        """Return a snapshot of the servers' counters: steps, updates, staleness and others.

        Unlike `tfps.ParameterServerStrategy.stats`, it lacks the values that only the chief knows.

        Raises:
            StrategyClosed: the job has ended, or this attachment was closed.
            tf.errors.UnavailableError: a server does not reply within ``timeout_s``.
        """

        def compute_stats(patience_s: float) -> JobStats:
            cells, _ = self._read({}, patience_s)
            record = self._records[0]
            return job_stats(
                self._layout,
                cells,
                workers=record.present,
                has_bound=record.bound_steps is not None,
            )

        return self._retry_until_timeout(compute_stats)

    def close(self) -> None:
        """Close the connections; does not affect the job. Later calls do nothing."""
        if not self._closed:
            self._closed = True
            for reader in self._readers:
                reader.close()

    def __enter__(self) -> Attachment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _layout(self) -> LedgerLayout:
        return LedgerLayout(self._records[0].workers)

    def _read_records(self, patience_s: float) -> None:
        """Read the servers' records, which contain the places of the variables."""
        record_reads = [partial(reader.record, patience_s=patience_s) for reader in self._readers]
        records = [record for record in run_in_parallel(record_reads) if record is not None]
        if len(records) < len(self._readers):
            raise NoSuchJob
        if (protocol := records[0].protocol) != PROTOCOL:
            raise ConfigError(
                f"job: {self.job!r} uses protocol {protocol} of tfps, expected {PROTOCOL}, the "
                "protocol of this process; read the job with the version of tfps that trains it"
            )
        if (servers := records[0].servers) != len(records):
            raise ConfigError(
                f"addresses: received {len(records)}, but job {self.job!r} has {servers} "
                "parameter servers; give all addresses in the order of TF_CONFIG"
            )
        self._records: list[JobRecord] = records
        self._values = find_recorded_values(records)

    def _select_values(
        self, names: Sequence[str] | None, patience_s: float
    ) -> dict[str, RecordedValue]:
        if names is None:
            return self._values
        if isinstance(names, str):
            raise ConfigError(f"names: received {names!r}, expected a list of names: [{names!r}]")
        unknown = [name for name in names if name not in self._values]
        if unknown:
            # A chief records new variables when it schedules work.
            self._read_records(patience_s)
            unknown = [name for name in unknown if name not in self._values]
        if unknown:
            raise ConfigError(
                f"names: job {self.job!r} has no {unknown}; it has {list(self._values)}"
            )
        return {name: self._values[name] for name in names}

    def _read(
        self, chosen: dict[str, RecordedValue], patience_s: float
    ) -> tuple[list[Array], dict[tuple[int, str], Array]]:
        wanted: list[list[str]] = [[] for _ in self._readers]
        sizes = [0] * len(self._readers)
        for part in (part for value in chosen.values() for part in value.parts):
            wanted[part.server].append(part.resource)
            sizes[part.server] += part.view.size_bytes
        for server, size_bytes in enumerate(sizes):
            if size_bytes > MAX_REPLY_BYTES:
                raise ConfigError(
                    f"names: received {size_bytes:,} bytes of variables on ps {server}, expected "
                    f"at most {MAX_REPLY_BYTES:,} at once; pull the names in several calls"
                )
        reads = [
            partial(reader.read, record, resources, patience_s=patience_s)
            for reader, record, resources in zip(self._readers, self._records, wanted, strict=True)
        ]
        replies = run_in_parallel(reads)
        values_found = {
            (server, resource): value
            for server, ((_, values), resources) in enumerate(zip(replies, wanted, strict=True))
            for resource, value in zip(resources, values, strict=True)
        }
        return [cells for cells, _ in replies], values_found

    def _retry_until_timeout(self, call: Callable[[float], Result]) -> Result:
        """Call a function; repeat the call if variables move or a server does not reply in time."""
        if self._closed:
            raise StrategyClosed(f"job {self.job!r}: this attachment is closed; attach again")
        until_s = time.monotonic() + self._timeout_s
        has_records = True
        while True:
            left_s = max(0.0, until_s - time.monotonic())
            try:
                if not has_records:
                    self._read_records(left_s)
                    has_records = True
                return call(left_s)
            except NoSuchJob as error:
                text = f"job {self.job!r} has ended, and the servers no longer hold its variables"
                raise StrategyClosed(text) from error
            except RecordChanged:
                has_records = False
            except tf.errors.UnavailableError:
                if time.monotonic() > until_s:
                    raise
                if not has_records:  # perhaps it was restarted
                    for reader in self._readers:
                        reader.renew()
                has_records = False
                time.sleep(RETRY_PAUSE_S)
