"""Pass a named job, with its variables on the servers, from a dead chief to the next one."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.named_resource import NamedResource
from tfps.cluster import accepts_connections
from tfps.consistency.applied_window import newest_function
from tfps.consistency.ledger import TERM_INCARNATIONS
from tfps.consistency.server_ledger import APPLIED, LEDGER
from tfps.errors import ConfigError
from tfps.placement.plan import View
from tfps.recovery.chief.job_record import RECORD, JobRecord, find_differences, replaced_optimizers
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server_contents import VariableRecord

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S = 1.0  # how often a chief checks whether another one has the job
# The previous chief may have scheduled this many functions that have pushed nothing yet, and one
# that still runs may push later. So the next chief's numbers begin this far behind.
UNSEEN_FUNCTIONS = 1 << 20
# The bookkeeping that the next chief keeps; all else begins anew.
PRESERVED_RESOURCES = (LEDGER, APPLIED)


class JobOnServers:
    """Reads the variables and records that servers keep of a job after its chief has died.

    Args:
        container: the job's resource container.
        devices: the servers' devices, in the servers' order.
    """

    def __init__(self, *, container: str, devices: Sequence[str]) -> None:
        self._container, self._devices = container, tuple(devices)
        self.records = [self._read(device) for device in devices]

    @property
    def exists(self) -> bool:
        """Whether the servers have a job to take over."""
        return any(self.records)

    def _read(self, device: str) -> JobRecord | None:
        with tf.init_scope(), private.placed_on(device):
            handle = _handle(self._container, RECORD, [], tf.string)
            if not bool(tf.raw_ops.VarIsInitializedOp(resource=handle)):
                return None
            text = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.string)
        return JobRecord.from_json(text.numpy().decode())

    def check(self, wanted: JobRecord, *, job: str) -> None:
        """Check that the job is not in use and has the wanted properties.

        Raises:
            ConfigError: the job is in use, a server has lost it, or its properties differ; names
                every difference.
        """
        held = next(record for record in self.records if record is not None)
        if held.chief != wanted.chief and accepts_connections(held.chief):
            raise ConfigError(
                f"job: received {job!r}, expected a job without a running chief; the chief at "
                f"{held.chief} runs it. Stop that chief, or give this job another name"
            )
        gone = [f"ps {index}" for index, record in enumerate(self.records) if record is None]
        if gone:
            raise ConfigError(SERVERS_RESTARTED.format(job=job, gone=" and ".join(gone)))
        problems = find_differences(held, wanted)
        if problems:
            problems = [f"job: cannot resume {job!r}: {line}" for line in problems]
            problems[-1] += f"; {CONFLICT_REMEDY.format(job=job)}"
            raise ConfigError(problems, source="ParameterServerStrategy")

    def views(self, server: int) -> dict[str, View]:
        """Return where a server's variables lie, by the resources' names."""
        record = self.records[server]
        return {} if record is None else dict(record.views)

    def get_other_resources(self, server: int) -> tuple[str, ...]:
        """Return the names of a server's other resources."""
        record = self.records[server]
        return () if record is None else record.others

    def split_slabs(self) -> list[dict[str, VariableRecord]]:
        """Copy each variable that lies in a slab to memory of its own, and free the slabs.

        The next chief makes its own slabs. A crash at any moment loses nothing: the slab is freed
        after the record of the copies is written.

        Returns:
            For each server the records of its variables, by name.
        """
        held = []
        for index, (device, record) in enumerate(zip(self._devices, self.records, strict=True)):
            assert record is not None
            slabs: dict[str, None] = {}
            with tf.init_scope(), private.placed_on(device):
                for name, view in record.views.items():
                    if view.slab == name:
                        continue
                    slabs[view.slab] = None
                    dtype = tf.as_dtype(view.dtype)
                    slab = tf.raw_ops.ReadVariableOp(
                        resource=_handle(self._container, view.slab, [None], dtype), dtype=dtype
                    )
                    size = int(np.prod(view.shape, dtype=np.int64))
                    value = tf.reshape(tf.slice(slab, [view.offset_items], [size]), view.shape)
                    NamedResource(self._container, name, device).write(value)
            apart = {
                name: dataclasses.replace(view, slab=name, offset_items=0)
                for name, view in record.views.items()
            }
            self.records[index] = record = dataclasses.replace(record, views=apart)
            self._write(device, record)
            for slab_name in slabs:
                NamedResource(self._container, slab_name, device).destroy()
            held.append(
                {
                    name: VariableRecord(tf.TensorShape(view.shape), tf.as_dtype(view.dtype))
                    for name, view in record.views.items()
                }
                | dict.fromkeys(PRESERVED_RESOURCES, VariableRecord(tf.TensorShape(None), tf.int64))
            )
        return held

    def discard(self) -> None:
        """Free all resources that the records name; the next chief makes the others anew."""
        for device, record in zip(self._devices, self.records, strict=True):
            if record is not None:
                names = {view.slab for view in record.views.values()}
                for name in sorted(names.union(record.others, PRESERVED_RESOURCES, [RECORD])):
                    NamedResource(self._container, name, device).destroy()
        self.records = [None] * len(self.records)

    def _write(self, device: str, record: JobRecord) -> None:
        with tf.init_scope(), private.placed_on(device):
            NamedResource(self._container, RECORD, device).write(tf.constant(record.to_json()))


SERVERS_RESTARTED = (
    "job: cannot resume {job!r}: {gone} restarted without a chief and lost its part. To resume "
    "from the newest checkpoint, discard the job with job=tfps.Job({job!r}, fresh=True) and call "
    "CheckpointManager.restore_latest() after compile; or give this job another name"
)
CONFLICT_REMEDY = (
    "use the settings of the job, discard it with job=tfps.Job({job!r}, fresh=True), or give this "
    "job another name"
)


class NamedJob:
    """Keeps a job's record on its servers, and makes the servers obey this chief.

    Args:
        runtime: the job.
        record: the job's record, without views.
        previous: the variables and records of the previous chief.
    """

    def __init__(self, runtime: Runtime, record: JobRecord, *, previous: JobOnServers) -> None:
        self._runtime, self._record, self._previous = runtime, record, previous
        self._write = []
        self._written = [""] * len(runtime.servers)
        self._checked_s = 0.0
        for server in runtime.servers:
            contents, written = (
                server.contents,
                functools.partial(self._record_written_to, server.index),
            )
            # Resources that this chief never opens are destroyed with the job as well.
            left = {*contents.held, *previous.get_other_resources(server.index)}
            left -= {resource.shared_name for resource in contents.records}
            contents.add(NamedResource(contents.container, n, server.device) for n in left)
            place = NamedResource(contents.container, RECORD, server.device)
            contents.records[place] = VariableRecord(tf.TensorShape([]), tf.string, written)
            self._write.append(
                server.channel.make_function(
                    self._trace_write, arguments=[tf.TensorSpec([], tf.string)]
                )
            )

    def begin(self) -> None:
        """Take the job over, so that the servers refuse the previous chief and its workers.

        Raises:
            ChiefReplaced: another chief was quicker.
        """
        runtime = self._runtime
        layout = runtime.ticket_server.layout
        term = 1 + max(int(server.cells()[layout.TERM]) for server in runtime.servers)
        runtime.members.begin_term(term)
        windows = [server.ledger.read_values().applied for server in runtime.servers]
        runtime.closure_numbers.begin_after(newest_function(windows) + UNSEEN_FUNCTIONS)
        for server in runtime.servers:
            server.claim_job(term)
            for worker in range(runtime.max_workers):
                server.evict(worker, term * TERM_INCARNATIONS)
            server.open_tickets(0)
        self.write_record()
        self._checked_s = time.monotonic()

    def refuse_if_replaced(self) -> None:
        """Check, once a second at most, that a server still obeys this chief.

        The chief calls it before it accesses a variable itself. A chief that was taken for dead had
        been stopped or cut off for longer than a second.

        Raises:
            ChiefReplaced: the servers obey another chief.
        """
        now_s = time.monotonic()
        if now_s - self._checked_s < CHECK_INTERVAL_S:
            return
        self._checked_s = now_s
        living = [server for server in self._runtime.servers if server.lost is None]
        with contextlib.suppress(tf.errors.UnavailableError):  # the access itself will fail
            for server in living[:1]:
                server.refuse_if_of_another_chief()

    def write_record(self) -> None:
        """Write the record, including the places of variables, to each server that is not lost.

        Writes nothing if the program trains with another optimizer than the job: then its next
        access to a variable is refused.
        """
        self._refuse_another_optimizer()
        if self._runtime.has_mismatches:
            return
        for index, server in enumerate(self._runtime.servers):
            held = self._previous.views(index).items()
            unopened = {name: view for name, view in held if name in server.contents.held}
            views = unopened | self._runtime.get_views(index)
            known = {name for name, view in views.items()} | {view.slab for view in views.values()}
            others = {
                resource.shared_name
                for resource, record in list(server.contents.records.items())
                if record is not None
                or resource.shared_name in self._previous.get_other_resources(index)
            }.difference(known, PRESERVED_RESOURCES, [RECORD])
            record = dataclasses.replace(self._record, views=views, others=tuple(sorted(others)))
            self._written[index] = record.to_json()
            if server.lost is None:
                self._write[index](self._written[index])

    def _refuse_another_optimizer(self) -> None:
        unopened, created = [], []
        for index, server in enumerate(self._runtime.servers):
            old_views = self._previous.views(index)
            unopened += [v.variable for n, v in old_views.items() if n in server.contents.held]
            views = self._runtime.get_views(index).items()
            created += [view.variable for name, view in views if name not in old_views]
        if self._previous.exists:
            mismatches = replaced_optimizers(unopened=unopened, created=created)
            self._runtime.servers[0].contents.mismatches += mismatches

    def _record_written_to(self, server: int) -> tf.Tensor:
        """Return the record as last written to a server, to restore it when the server restarts."""
        return tf.constant(self._written[server])

    def _trace_write(self, text: tf.Tensor) -> list[tf.Tensor]:
        handle = _handle(self._runtime.container, RECORD, [], tf.string)
        tf.raw_ops.AssignVariableOp(resource=handle, value=text)
        return [tf.constant(1, tf.int64)]


def _handle(container: str, name: str, shape: Any, dtype: tf.DType) -> tf.Tensor:
    return private.create_variable_handle(
        shape=tf.TensorShape(shape), dtype=dtype, shared_name=name, container=container
    )
