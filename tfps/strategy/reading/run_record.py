"""Reads what the record says of the run of `fit` that goes on, or has ended last."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.consistency.ledger import NEVER, NOTHING
from tfps.placement.plan import Plan, View
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.training.run.ticket_run import TicketRun

RATE_SUFFIX = "/learning_rate"


def find_largest_variables(plan: Plan) -> list[str | None]:
    """Return the path of the largest variable, or shard, of each server; None without one."""
    views = sorted(plan.views, key=lambda view: view.size_bytes)
    largest = {view.server: view.variable for view in views}
    return [largest.get(server) for server in range(plan.servers)]


def read_loss(run: TicketRun) -> float | None:
    """Return the mean of the loss in the epoch so far; None if the program has none."""
    program = run.compiled.program
    values = program.totals.compute_values(run.metrics, run.metrics_before)
    named = {v.path: float(x) for v, x in zip(program.metrics, values, strict=True) if x.ndim == 0}
    count = named.get("loss/count")
    return named["loss/total"] / count if count else None


def describe_run(run: TicketRun, runtime: Runtime) -> dict[str, Any]:
    """Return what the run does, and the indexes of workers that compute or wait for others."""
    server, workers = runtime.ticket_server, range(runtime.workers)
    layout, cells = server.layout, server.cells()  # the run's are old while the chief is busy
    # A round waits for workers that are expected, too.
    present = [w for w in workers if cells[layout.active(w)] or cells[layout.begins(w)] < NEVER]
    waiting = [w for w in present if cells[layout.waiting(w)] or cells[layout.wanted(w)] > NOTHING]
    return {
        "kind": "train" if run.compiled.program.changes_variables else "test",
        "steps": run.completed,
        "waiting": waiting,
        "computing": [worker for worker in present if worker not in waiting],
    }


def read_values(runtime: Runtime) -> dict[str, Any]:
    """Return the first variable that is not finite, and the learning rate; servers look for both.

    Raises:
        tf.errors.OpError: a server does not reply.
    """
    views = [view for view in runtime.plan.views if tf.as_dtype(view.dtype).is_floating]
    found: dict[str, tuple[bool, float]] = {}  # whether it is finite, and its first number
    for server in runtime.servers:
        own = [view for view in views if view.server == server.index]
        if own:
            values = zip(*_read(own, server=server, container=runtime.container), strict=True)
            found |= zip((view.variable for view in own), values, strict=True)
    bad = [view.variable for view in views if not found[view.variable][0]]
    rates = [float(first) for name, (_, first) in found.items() if name.endswith(RATE_SUFFIX)]
    return {"not_finite": bad[0] if bad else None, "learning_rate": rates[0] if rates else None}


def _read(views: list[View], *, server: Server, container: str) -> list[Any]:
    """Return which variables are finite, and the first number of each."""

    def trace() -> list[tf.Tensor]:
        are_finite, first = [], []
        for view in views:
            dtype = tf.as_dtype(view.dtype)
            handle = private.create_variable_handle(
                shape=tf.TensorShape(None), dtype=dtype, shared_name=view.slab, container=container
            )
            slab = tf.reshape(tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype), [-1])
            value = slab[view.offset_items : view.offset_items + math.prod(view.shape)]
            are_finite.append(tf.reduce_all(tf.math.is_finite(value)))
            first.append(tf.cast(value[0], tf.float64))
        return [tf.stack(are_finite), tf.stack(first)]

    return server.channel.make_function(trace, arguments=0)(patience_s=0.0)
