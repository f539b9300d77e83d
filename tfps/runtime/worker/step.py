"""Traces a program's step on a worker, with copies of variables and exchanges with servers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.variables.worker_variable import WorkerVariable
from tfps.optimizers.optimizer_call import OptimizerCall
from tfps.optimizers.whole_model import prepare_gradients
from tfps.runtime.message.coding import CodedVector
from tfps.runtime.message.duration import begin_timing, measure_microseconds
from tfps.runtime.message.payload import Body, decode_values, encode_push
from tfps.runtime.message.request_header import NO_FIELDS, NOT_MEASURED, Fields
from tfps.runtime.message.wire import collect_loss_scale, get_gradient_name, split_tensors
from tfps.runtime.program.examples import merge_gradients
from tfps.runtime.server.half import ServerHalf
from tfps.runtime.worker.exchange import ServerReplies, build_requests, get_field_by_server
from tfps.runtime.worker.look_ups import LookUps
from tfps.runtime.worker.residuals import PushEncoder, Residuals
from tfps.runtime.worker.round_agreement import RoundAgreement
from tfps.runtime.worker.table_rows import TableRows
from tfps.runtime.worker.worker_copies import WorkerCopies
from tfps.transport.carrier import Carrier, Message, ServerCall
from tfps.transport.message import Kind, Reply, Request


class Step:
    """Traces steps inside one closure of a worker (see `bridge.step_scope.StepTrace`).

    Subclasses, for `fit` and for scheduled functions, say where the state of a step lies between
    exchanges, how the worker is identified, and what follows a reply.
    """

    def __init__(self, servers: Sequence[ServerHalf], *, carrier: Carrier) -> None:
        self.servers, self.carrier = servers, carrier
        self.program = program = servers[0].program
        # A table has only a name here, by which tapes find its gradient.
        parameters = [*program.variables, *program.schedule.tables]
        self.copies = WorkerCopies(
            [*parameters, *program.metrics, *program.seeds], devices=program.devices.names
        )
        self.look_ups = LookUps(servers, send=self._look_up, pushes=self)
        self.tables = TableRows(servers, look_ups=self.look_ups)
        self.residuals = Residuals(servers)
        self.coding: PushEncoder | None = None  # of the latest encoded push
        self.rounds = RoundAgreement(self._pull_round, offers=servers[0].has_function)
        self.shares: Sequence[tf.Tensor] = ()  # the devices' shares in the results of the step
        self._call_number = 0  # the index of the next optimizer call

    @property
    def position(self) -> tf.Tensor | None:
        """The position of this step's ticket in its ticket run; None without tickets."""
        return None

    def get_copy(self, keras_variable: Any) -> WorkerVariable:
        return self.copies.get_copy(0, keras_variable)

    def get_copy_on(self, device: int, keras_variable: Any) -> WorkerVariable:
        return self.copies.get_copy(device, keras_variable)

    def assign(self, keras_variable: Any, value: Any) -> None:
        self.copies.assign(keras_variable, value)

    def draw_seed(self) -> tf.Tensor | None:
        return None if self.program.draw_seeds is None else self.program.draw_seeds.next()

    def look_up(self, keras_variable: Any, ids: tf.Tensor) -> tf.Tensor | None:
        return self.look_up_on(0, keras_variable, ids)

    def look_up_on(self, device: int, keras_variable: Any, ids: tf.Tensor) -> tf.Tensor | None:
        if not self.keeps_row_gradients(keras_variable):
            return None
        return self.tables.look_up(
            keras_variable, ids, copy=self.get_copy_on(device, keras_variable)
        )

    def keeps_row_gradients(self, keras_variable: Any) -> bool:
        return self.tables.is_table(keras_variable)

    def on_normalization(self, layer: Any, *, uses_whole_batch: bool) -> None:
        """Do nothing: the first trace has found the layer."""

    def on_graph_complete(self, graph: Any) -> None:
        self.look_ups.on_graph_complete(graph)

    def merge_replicas(self, function: Callable[..., Any], tensors: Sequence[tf.Tensor]) -> Any:
        return function(list(tensors))

    def apply(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        variables = list(variables if variables is not None else optimizer._trainable_variables)
        pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        part = [g if self.keeps_row_gradients(v) else tf.convert_to_tensor(g) for g, v in pairs]
        self.apply_parts(optimizer, [part], [v for _, v in pairs])

    def apply_parts(
        self, optimizer: Any, parts: Sequence[Sequence[Any]], variables: Sequence[Any]
    ) -> None:
        """Merge and apply the gradients that the worker's devices computed, each from its part."""
        call = OptimizerCall(optimizer, tuple(variables))
        planned = self.program.calls[self._call_number : self._call_number + 1]
        if [call.identity] != [each.identity for each in planned]:
            raise RuntimeError(
                "received optimizer calls in another order, or on other variables, than in the "
                "first trace of the step; call the same optimizers on the same variables in each "
                "trace"
            )
        together = merge_gradients(parts, self.shares, variables=variables)
        self.look_ups.send_delayed()  # gradients of rows use the ids of look-ups
        pairs = zip(together, variables, strict=True)
        call_number, self._call_number = self._call_number, self._call_number + 1
        values = prepare_gradients(
            optimizer,
            [self.tables.collect_gradient(g, v) for g, v in pairs],
            variables=variables,
            read=self.copies.read,
            clips_all=self.program.schedule.mirrored is not None,
        )
        for value, variable in zip(values, variables, strict=True):
            self.tables.set_values(variable, value)
        self.exchange(
            call_number, dict(zip(map(get_gradient_name, variables), values, strict=True))
        )

    def exchange(self, call_number: int, tensors: Mapping[str, tf.Tensor]) -> None:
        """Push gradients, or differences instead, and load the values in the replies."""
        raise NotImplementedError

    @property
    def caller_fields(self) -> Fields:
        """The header fields that identify the worker in all requests of the step."""
        raise NotImplementedError

    def get_versions_and_fields(self, kind: Kind) -> tuple[Sequence[Any], Fields]:
        """Return the versions, by server, and header fields of requests of a kind."""
        raise NotImplementedError

    def make_requests(
        self,
        kind: Kind,
        bodies: Mapping[int, Body] | None = None,
        *,
        call_number: int = 0,
        extra_fields: Fields = NO_FIELDS,
    ) -> dict[int, ServerCall]:
        """Build requests of this worker (see `exchange.build_requests`), with extra fields."""
        versions, fields = self.get_versions_and_fields(kind)
        fields = {**fields, **extra_fields}
        return build_requests(
            self.servers, kind, bodies, call_number=call_number, versions=versions, fields=fields
        )

    def send_requests(
        self, kind: Kind, bodies: Mapping[int, Body] | None = None, **options: Any
    ) -> dict[int, Message]:
        """Send requests (see `make_requests`), and return the servers' replies."""
        return self.carrier.exchange(self.make_requests(kind, bodies, **options))

    def get_answered_pushes(self) -> Sequence[tf.Tensor]:
        """Return tensors of the current graph that are ready when earlier pushes were answered."""
        raise NotImplementedError

    def delay_pushes_until(self, operations: Sequence[Any]) -> None:
        """Let later pushes wait for operations of the current graph."""
        raise NotImplementedError

    def _look_up(self, bodies: Mapping[int, Body], *, is_early: bool) -> dict[int, Message]:
        """Send look-ups; if ``is_early``, without waiting for an exchange of the step."""
        versions, fields = (
            ((), self.caller_fields) if is_early else self.get_versions_and_fields(Kind.LOOK_UP)
        )
        calls = build_requests(self.servers, Kind.LOOK_UP, bodies, versions=versions, fields=fields)
        return self.carrier.exchange(calls)

    def _pull_round(self, kind: Kind, number: tf.Tensor) -> ServerReplies:
        return ServerReplies.from_replies(
            self.send_requests(kind, extra_fields={Request.BASE_VERSION: number})
        )

    def encode(self, call_number: int, tensors: Mapping[str, tf.Tensor]) -> dict[int, Body]:
        """Encode the bodies of a push, by server, from tensors of whole variables, by name."""
        called = self.program.calls[call_number]
        variables = self.tables.exclude_tables(called.variables)
        gradients = split_tensors(
            variables, lambda v: tensors[get_gradient_name(v)], name=get_gradient_name
        )
        scale = collect_loss_scale(called.optimizer, self.copies.read)
        tensors = {**tensors, **gradients, **scale, **self.get_extra_tensors(call_number)}
        seed = tf.stack([self.seed, self.compute_push_key(call_number)])
        rows = self.tables.encode_rows(call_number, seed=seed)
        self.coding = coding = PushEncoder(
            self.residuals, seed=seed, scale=next(iter(scale.values()), None)
        )
        bodies = {
            p: encode_push(
                server.wires[call_number],
                tensors,
                rows.get(p),
                encode_vector=functools.partial(coding.encode, p),
            )
            for p, server in enumerate(self.servers)
        }
        if self.program.devices.use_main_memory:
            return bodies
        # On a GPU joining is free, and one copy to main memory is cheaper than many.
        return {p: body.joined for p, body in bodies.items()}

    @property
    def seed(self) -> tf.Tensor:
        """The seed of the model, int64: random codecs use it, with the number of the push."""
        return tf.constant(0, tf.int64)

    def compute_push_key(self, call_number: int) -> tf.Tensor:
        """Compute the int64 key of a push, which is the same if the push is repeated."""
        raise NotImplementedError

    @property
    def codec_fields(self) -> Fields:
        """The durations of codecs in the latest encoded push, as header fields."""
        return NO_FIELDS if self.coding is None else self.coding.codec_fields

    def commit_residuals(self, replies: Mapping[int, Message]) -> None:
        """Update the residuals of the latest encoded push, after its replies."""
        if self.coding is not None:
            self.coding.commit_residuals(get_field_by_server(replies, Reply.STATUS))

    def get_extra_tensors(self, call_number: int) -> Mapping[str, tf.Tensor]:
        """Return the tensors that a push carries beside gradients, by name."""
        return {}

    def load(
        self,
        payloads: Sequence[tf.Tensor],
        take: Callable[[Any, tf.Tensor], None],
        *,
        call_number: int | None = None,
    ) -> Any:
        """Decode the replies of all servers, and pass each variable and its value to ``take``.

        Returns the microseconds of decoding.
        """
        layouts = [
            server.parameter_layout if call_number is None else server.wires[call_number].reply
            for server in self.servers
        ]
        wires = () if call_number is None else [each.wires[call_number] for each in self.servers]
        coded = [each for wire in wires for each in wire.coded_values]
        begin, payloads = begin_timing(payloads) if coded else (None, payloads)
        decode_reply = functools.partial(self.decode_reply, call_number)
        values = decode_values(
            layouts, payloads, self.program.variables, coded, decode_reply=decode_reply
        )
        for variable, value in values:
            take(variable, value)
        if begin is None:
            return NOT_MEASURED
        return measure_microseconds(begin, until=[value for _, value in values])

    def decode_reply(
        self, call_number: int | None, coded: CodedVector, data: tf.Tensor
    ) -> Mapping[str, tf.Tensor]:
        """Decode values, by name, from encoded bytes in the reply to an optimizer call."""
        return coded.decode_tensors(data)

    def load_initial(self, variable: Any, value: tf.Tensor) -> None:
        """Set a variable to a value of the servers."""
        self.copies.load(variable, value)

    def load_newer(self, variable: Any, value: tf.Tensor) -> None:
        """Continue with a newer value of a variable."""
        self.load_initial(variable, value)
