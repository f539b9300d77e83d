"""Defines the layouts of a program's messages to and from each server."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from tfps.bridge.variables.shards import get_all_shards, get_row_rule, get_shards, split_by_rule
from tfps.compression.by_path import CodecChoice
from tfps.compression.codec import check_codec
from tfps.optimizers.loss_scaling import get_loss_scale
from tfps.runtime.message.coding import CodedVector, choose_codecs
from tfps.runtime.message.moved_state import ShardMove, find_moves, list_move_entries
from tfps.runtime.message.row_format import RowFormat, choose_row_formats
from tfps.runtime.program.program import Program
from tfps.transport.layout import Layout
from tfps.transport.traffic import CodedPart

METRICS, OUTPUTS = "metrics", "outputs"
LayoutEntry: TypeAlias = tuple[str, str, tuple[int, ...]]  # name, dtype and shape


class ServerShards(NamedTuple):
    """Variables of one server, in the worker's and in the server's order of a message.

    A slab whose variables all travel is one segment for the server; for the worker the variables'
    segments lie end to end in its place. The bytes are the same.
    """

    variables: tuple[Any, ...]  # Keras variables or shards, in the worker's order
    natives: tuple[Any, ...]  # the server's variables: slabs, and variables outside of slabs

    @property
    def layout(self) -> Layout:
        """The layout of the values on the worker."""
        return Layout.from_entries(self.entries(gradients=False, for_server=False))

    @property
    def server_layout(self) -> Layout:
        """The layout of the values on the server."""
        return Layout.from_entries(self.entries(gradients=False, for_server=True))

    def entries(self, *, gradients: bool, for_server: bool) -> list[LayoutEntry]:
        """Return the names, dtypes and shapes for a layout."""
        natives = self.natives if for_server else [v._value for v in self.variables]
        return [
            _make_entry(n, get_native_gradient_name(n) if gradients else n.shared_name)
            for n in natives
        ]


def group_by_slab(variables: Iterable[Any]) -> ServerShards:
    """Group variables of one server so that complete slabs become single segments."""
    by_name = {get_variable_name(variable): variable for variable in variables}
    ordered: dict[str, Any] = {}
    natives = []
    for name, variable in by_name.items():
        if name in ordered:
            continue
        slab = variable._value.slab
        if slab is not None and all(member in by_name for member in slab.layout.names):
            ordered.update((member, by_name[member]) for member in slab.layout.names)
            natives.append(slab)
        else:
            ordered[name] = variable
            natives.append(variable._value)
    return ServerShards(tuple(ordered.values()), tuple(natives))


@dataclass(frozen=True)
class CallWire:
    """The messages of one optimizer call with one server."""

    gradients: ServerShards  # the variables whose gradients go up
    state: tuple[Any, ...]  # shards whose new values go up
    moves: tuple[ShardMove, ...]  # moves of some of the state
    counts: tuple[Any, ...]  # counts of updates whose increases go up
    values: ServerShards  # the variables whose values come down
    request: Layout
    reply: Layout
    server_request: Layout  # the same bytes for the server
    server_reply: Layout  # the same bytes for the server
    tables: tuple[Any, ...] = ()  # shards of tables whose gradients' rows follow the payload
    row_formats: tuple[RowFormat, ...] = ()  # of the tables
    coded: tuple[CodedVector, ...] = ()  # the gradients that codecs encode
    coded_values: tuple[CodedVector, ...] = ()  # the values that codecs encode
    encoded_request_parts: tuple[CodedPart, ...] = ()  # the encoded sizes of the request
    encoded_reply_parts: tuple[CodedPart, ...] = ()  # the encoded sizes of the reply
    scale: Any = None  # the loss scale, which goes up

    @property
    def updated_variables(self) -> tuple[Any, ...]:
        """The server's variables, slabs and tables whose gradients a push contains."""
        return (*self.gradients.natives, *(table._value for table in self.tables))


def get_variable_name(variable: Any) -> str:
    """Return a variable's name in a payload."""
    return str(variable._value.shared_name)


def get_gradient_name(variable: Any) -> str:
    """Return the name of a variable's gradient in a payload."""
    return get_native_gradient_name(variable._value)


def get_native_gradient_name(native: Any) -> str:
    """Return the name of the gradient of a server's variable or slab in a payload."""
    return to_gradient_name(native.shared_name)


def to_gradient_name(name: str) -> str:
    """Return the name of a gradient from the name of the variable or slab."""
    return f"gradient of {name}"


def get_count_name(variable: Any) -> str:
    """Return the name of a count's increase in a payload."""
    return f"increase of {variable._value.shared_name}"


def get_scale_name(variable: Any) -> str:
    """Return the name of the loss scale in a payload."""
    return f"scale of {variable._value.shared_name}"


def collect_loss_scale(optimizer: Any, read: Callable[[Any], tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return the loss scale that a push carries, by name; ``read`` returns the sender's value."""
    scale = get_loss_scale(optimizer)
    return {} if scale is None else {get_scale_name(scale): read(scale)}


def get_shards_on(variables: Iterable[Any], device: str) -> tuple[Any, ...]:
    """Return the shards of some variables on one server."""
    return tuple(shard for shard in get_all_shards(variables) if shard._value.device == device)


def split_tensors(
    variables: Iterable[Any],
    get_value: Callable[[Any], tf.Tensor],
    *,
    name: Callable[[Any], str] = get_variable_name,
) -> dict[str, tf.Tensor]:
    """Split the tensors of variables into tensors of their shards, by name."""
    return {
        name(shard): part
        for variable in variables
        for shard, part in zip(
            get_shards(variable),
            split_by_rule(get_value(variable), get_row_rule(variable)),
            strict=True,
        )
    }


def build_parameter_layout(
    variables: Iterable[Any], further_entries: Iterable[LayoutEntry] = ()
) -> Layout:
    """Build the layout of variables' values, followed by further entries."""
    return Layout.from_entries(
        [*(_make_entry(variable._value) for variable in variables), *further_entries]
    )


def build_report_layout(program: Program) -> Layout:
    """Build the layout of a step's report: its metric state and outputs."""
    return Layout.from_entries(_list_report_entries(program))


def build_function_wire(program: Program, call_number: int, *, device: str) -> CallWire:
    """Build the message format of a scheduled function's optimizer call.

    With local steps the call is the end of a period: differences and counts go up; weights, counts
    and learning rates come down.
    """
    local = program.schedule.local
    if local is None:
        returned = program.get_changed_variables(program.calls[call_number])
        return build_call_wire(
            program, call_number, device=device, reports=False, is_last=False, returned=returned
        )
    assigned = {id(variable) for variable in program.state}
    rates = [rate for rate in local.rates if id(rate) not in assigned]
    weights = program.calls[call_number].variables
    exchanged = dataclasses.replace(program, variables=[*weights, *local.counts, *rates], state=[])
    return build_call_wire(exchanged, call_number, device=device, reports=False)


def build_call_wire(
    program: Program,
    call_number: int,
    *,
    device: str,
    reports: bool,
    is_last: bool | None = None,
    returned: Sequence[Any] | None = None,
) -> CallWire:
    """Build the message format of an optimizer call with one server.

    Args:
        program: the program of the step.
        call_number: the index of the call.
        device: the device of the server.
        reports: whether the server takes the report of the step before (the ticket server does).
        is_last: whether the call ends the step; None: if it is the last one.
        returned: the variables whose values the reply brings; None: all.
    """
    if is_last is None:
        is_last = call_number == len(program.calls) - 1
    tables_and_mirrored = [*program.schedule.tables]
    trained = program.calls[call_number].variables
    looked_up = [v for v in trained if any(v is table for table in tables_and_mirrored)]
    if program.schedule.mirrored is not None:
        tables_and_mirrored += program.schedule.mirrored.weights
    known = {id(variable) for variable in tables_and_mirrored}
    whole = [v for v in trained if id(v) not in known]
    tables = get_shards_on(looked_up, device)
    gradients = group_by_slab(get_shards_on(whole, device))
    coded, plain = _split_by_codec(gradients, choices=choose_codecs(whole, program.schedule.push))
    pull = choose_codecs(whole, program.schedule.pull)
    # A learning rate that the step assigns has a copy on every server of its optimizer.
    state = tuple(p for p in get_all_shards(program.state) if device in p._value.devices)
    state = state if is_last else ()
    moves = find_moves(program, state)
    local = program.schedule.local
    counts = local.counts if local is not None and local.adds_counts else ()
    counts = tuple(v for v in counts if device in v._value.devices)
    returned = program.variables if returned is None else returned
    values = group_by_slab(get_shards_on((v for v in returned if id(v) not in known), device))
    coded_values, plain_values = _split_by_codec(values, choices=pull, gradients=False)
    scale = get_loss_scale(program.calls[call_number].optimizer)
    if coded_values:
        values = _order_by_codec(values, plain_values, choices=pull)
    bytes_down = [each.entry for each in coded_values]
    bytes_of = [each.entry for each in coded]
    rest = [*(_make_entry(v._value) for v in state), *list_move_entries(moves, program)]
    rest += [(get_count_name(v), "float64", ()) for v in counts]
    rest += _list_report_entries(program) if is_last and reports else []
    rest += [(get_scale_name(scale), "float32", ())] if scale is not None else []
    return CallWire(
        gradients=gradients,
        state=state,
        moves=moves,
        counts=counts,
        values=values,
        request=Layout.from_entries(
            [*bytes_of, *plain.entries(gradients=True, for_server=False), *rest]
        ),
        reply=Layout.from_entries(
            [*bytes_down, *plain_values.entries(gradients=False, for_server=False)]
        ),
        server_request=Layout.from_entries(
            [*bytes_of, *plain.entries(gradients=True, for_server=True), *rest]
        ),
        tables=tables,
        row_formats=choose_row_formats(tables, choose_codecs(looked_up, program.schedule.push)),
        coded=coded,
        server_reply=Layout.from_entries(
            [*bytes_down, *plain_values.entries(gradients=False, for_server=True)]
        ),
        coded_values=coded_values,
        encoded_request_parts=tuple(each.sizes for each in coded),
        encoded_reply_parts=tuple(each.sizes for each in coded_values),
        scale=scale,
    )


def _split_by_codec(
    shards: ServerShards, *, choices: Mapping[int, CodecChoice], gradients: bool = True
) -> tuple[tuple[CodedVector, ...], ServerShards]:
    """Return the coded vectors of gradients, or of values, and the shards without a codec.

    Raises:
        ConfigError: a codec whose bytes differ in number from its own statement.
    """
    groups, plain = _group_by_codec(shards, choices)
    coded = []
    for choice, together in groups:
        # Workers send gradients, and servers values.
        layouts = [
            Layout.from_entries(together.entries(gradients=gradients, for_server=for_server))
            for for_server in ((False, True) if gradients else (True, False))
        ]
        coded.append(CodedVector(choice, *layouts))
        check_codec(choice.codec, coded[-1].items)
    return tuple(coded), plain if coded else shards


def _group_by_codec(
    shards: ServerShards, choices: Mapping[int, CodecChoice]
) -> tuple[list[tuple[CodecChoice, ServerShards]], ServerShards]:
    """Return the shards that are encoded together, by codec, and the shards without a codec."""
    groups: dict[tuple[str, str], list[Any]] = {}
    plain = []
    for shard in shards.variables:
        if id(shard) in choices:
            key = choices[id(shard)].group, shard._value.dtype.name
            groups.setdefault(key, []).append(shard)
        else:
            plain.append(shard)
    together = [(choices[id(group[0])], group_by_slab(group)) for group in groups.values()]
    return together, group_by_slab(plain)


def _order_by_codec(
    shards: ServerShards, plain: ServerShards, *, choices: Mapping[int, CodecChoice]
) -> ServerShards:
    """Return the same shards, ordered by their encoded vectors, with uncoded shards last."""
    parts = [*(together for _, together in _group_by_codec(shards, choices)[0]), plain]
    return ServerShards(
        tuple(variable for part in parts for variable in part.variables),
        tuple(native for part in parts for native in part.natives),
    )


def _make_entry(native: Any, name: str | None = None) -> LayoutEntry:
    return (name or native.shared_name, native.dtype.name, tuple(native.shape))


def _list_report_entries(program: Program) -> list[LayoutEntry]:
    """Return the layout entries of a report; empty parts are left out."""
    items = {METRICS: program.metric_items, OUTPUTS: program.output_items}
    return [(name, "float64", (number,)) for name, number in items.items() if number]
