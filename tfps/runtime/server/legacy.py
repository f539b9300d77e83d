"""To be removed with the merge of the worker's side."""

from __future__ import annotations
from collections.abc import Mapping
from typing import Any, NamedTuple
import tensorflow as tf
from tfps.runtime.message.pushed import NOT_MEASURED
from tfps.runtime.server.server_stage import DURATIONS
from tfps.transport.carrier import Message
from tfps.transport.message import PROTOCOL, REQUEST_FIELDS, Kind, Request


class Caller(NamedTuple):
    slot: Any = None
    incarnation: Any = None
    clock: Any = None


NOBODY = Caller()


class Legacy:
    @property
    def join(self):
        return self.function(Kind.JOIN)

    @property
    def finish(self):
        return self.function(Kind.FINISH)

    @property
    def leave(self):
        return self.function(Kind.LEAVE)

    @property
    def pull_slots(self):
        return self.function(Kind.PULL, 1)

    @property
    def pushes(self):
        return {k: self.function(Kind.PUSH, k) for k in range(len(self.wires))}

    @property
    def look_ups(self):
        return {k: o.function for (kind, k), o in self._offers.items() if kind == Kind.LOOK_UP}

    @property
    def enter_round(self):
        return self.function(Kind.ENTER_ROUND) if self.offers(Kind.ENTER_ROUND) else None

    @property
    def await_round(self):
        return self.function(Kind.AWAIT_ROUND) if self.offers(Kind.AWAIT_ROUND) else None

    def call_with(self, message, kind, *, stage=0):
        return ServerHalfCall(self, kind, message, stage)

    def header(self, kind, *, stage=0, version=0, caller=NOBODY, told={}):
        fields: list[Any] = [0] * REQUEST_FIELDS
        for field in DURATIONS:
            fields[field] = told.get(field, NOT_MEASURED)
        fields[Request.PROTOCOL], fields[Request.JOB] = PROTOCOL, self.job_id
        fields[Request.PLAN], fields[Request.BASE_VERSION] = self.plan_id, version
        fields[Request.KIND], fields[Request.STAGE] = int(kind), stage
        if caller.slot is not None:
            fields[Request.SLOT] = tf.maximum(caller.slot, tf.constant(0, tf.int64))
            fields[Request.TICKET] = tf.minimum(caller.slot, tf.constant(0, tf.int64))
        if caller.incarnation is not None:
            fields[Request.INCARNATION] = caller.incarnation
        if caller.clock is not None:
            fields[Request.CLOCK] = caller.clock
        return tf.stack([tf.cast(field, tf.int64) for field in fields])

    def call(self, kind, message, *, stage=0, version=0, caller=NOBODY):
        if not isinstance(message, Message):
            message = Message.of(
                self.header(kind, stage=stage, version=version, caller=caller), message
            )
        return self._call(kind, message, stage=stage)


def ServerHalfCall(self, kind, message, stage):
    return self._call(kind, message, stage=stage)
