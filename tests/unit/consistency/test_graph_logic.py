"""The decisions on tensors, as servers run them, are those on integers, as the tests prove them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import tensorflow as tf
from hypothesis import given, settings

from tfps.consistency import admission, issuing
from tfps.consistency import ledger as decide
from tfps.consistency.admission import admit, admit_to_round, count_contribution, count_update
from tfps.consistency.ledger import MAX_STAGES, STALENESS_BINS, Books, Entries
from tfps.consistency.logic import PlainLogic
from tfps.consistency.server_ledger import ServerEntries, additions, writes
from tfps.runtime.server import bookkeeping
from tfps.runtime.server.bookkeeping import Sender, Turn
from tfps.transport.message import REQUEST_FIELDS, Request

SLOTS = 2
BOOKS = Books(SLOTS)
SLOT = st.integers(0, SLOTS - 1)
TRUTH = st.integers(0, 1)
# Few values, so that tickets, incarnations and versions often agree.
NUMBER = st.integers(-1, 3)
DROP_ABOVE = STALENESS_BINS // 2

Arguments = dict[str, Any]
Decision = Callable[[Entries, Arguments], list[Any]]


def _admit(
    entries: Entries, arguments: Arguments, *, is_update: bool, drop_above: int | None = None
) -> list[Any]:
    answer = admit(
        entries,
        alive=entries.is_alive(arguments["slot"], arguments["incarnation"]),
        key=arguments["key"],
        applied_key=arguments["applied_key"],
        base_version=entries.read(BOOKS.VERSION) - arguments["behind"],
        is_update=is_update,
        drop_above=drop_above,
    )
    return list(vars(answer).values())


def _push(
    entries: Entries,
    arguments: Arguments,
    *,
    is_update: bool,
    hands_out: bool,
    drop_above: int | None = None,
) -> list[Any]:
    header: list[Any] = [0] * REQUEST_FIELDS
    header[Request.CLOSED_STEPS] = 1
    header[Request.INCARNATION], header[Request.TICKET] = (
        arguments["incarnation"],
        arguments["ticket"],
    )
    header[Request.BASE_VERSION] = entries.read(BOOKS.VERSION) - arguments["behind"]
    header[Request.CLOSES], header[Request.EXAMPLES] = arguments["closes"], arguments["examples"]
    pushed = bookkeeping.push(
        entries,
        header=header,
        slot=arguments["slot"],
        is_ours=arguments["is_ours"] == 1,
        turn=Turn(1, is_update, hands_out, received_bytes=30, sent_bytes=40, drop_above=drop_above),
        applied_key=arguments["applied_key"],
    )
    return [value for value in vars(pushed).values() if value is not None]


def _admit_to_round(entries: Entries, arguments: Arguments) -> list[Any]:
    answer = admit_to_round(
        entries,
        alive=entries.is_alive(arguments["slot"], arguments["incarnation"]),
        in_time=arguments["in_time"] == 1,
        key=arguments["key"],
        applied_key=arguments["applied_key"],
        late_rounds=arguments["behind"],
    )
    return list(vars(answer).values())


def _contribute(entries: Entries, arguments: Arguments, *, is_update: bool) -> list[Any]:
    header: list[Any] = [0] * REQUEST_FIELDS
    header[Request.CLOSED_STEPS] = 1
    header[Request.TICKET], header[Request.CLOSES] = arguments["ticket"], arguments["closes"]
    pushed = bookkeeping.contribute(
        entries,
        header=header,
        slot=arguments["slot"],
        sender=Sender(arguments["is_ours"] == 1, arguments["in_time"] == 1, arguments["behind"]),
        turn=Turn(1, is_update, hands_out=True, received_bytes=30, sent_bytes=40),
        applied_key=arguments["applied_key"],
    )
    return [value for value in vars(pushed).values() if value is not None]


def _count_update(
    entries: Entries, arguments: Arguments, *, drop_above: int | None = None
) -> list[Any]:
    base_version = entries.read(BOOKS.VERSION) - arguments["behind"]
    alive = arguments["alive"] == 1 if "alive" in arguments else None
    counted = count_update(entries, base_version=base_version, drop_above=drop_above, alive=alive)
    return list(vars(counted).values())


def _count_contribution(entries: Entries, arguments: Arguments) -> list[Any]:
    counted = count_contribution(
        entries,
        alive=arguments["alive"] == 1,
        in_time=arguments["in_time"] == 1,
        late_rounds=arguments["behind"],
    )
    return list(vars(counted).values())


def _dismiss(entries: Entries, arguments: Arguments) -> list[Any]:
    truths = {name: arguments.pop(name) == 1 for name in ("leaves", "closed")}
    decide.dismiss(entries, **arguments, **truths)
    return [0]  # it answers nothing


def _with_alive(decision: Callable[..., Any]) -> Decision:
    def decided(entries: Entries, arguments: Arguments) -> list[Any]:
        return [decision(entries, alive=arguments.pop("alive") == 1, **arguments)]

    return decided


def _several(entries: Entries, arguments: Arguments) -> list[Any]:
    alive = arguments.pop("alive") == 1
    return list(issuing.issue_several(entries, alive=alive, **arguments))


def _plainly(decision: Callable[..., Any]) -> Decision:
    return lambda entries, arguments: [decision(entries, **arguments)]


PUSH = {
    "slot": SLOT,
    "incarnation": NUMBER,
    "key": NUMBER,
    "applied_key": NUMBER,
    "behind": st.integers(0, 2 * STALENESS_BINS),
}
REQUEST = {
    "slot": SLOT,
    "is_ours": TRUTH,
    "incarnation": NUMBER,
    "ticket": NUMBER,
    "closes": NUMBER,
    "examples": st.integers(0, 1 << 40),
    "behind": PUSH["behind"],
    "applied_key": st.integers(-1, 4 * MAX_STAGES),
}
DECISIONS: dict[str, tuple[Decision, dict[str, Any]]] = {
    "admit": (functools.partial(_admit, is_update=True), PUSH),
    "admit_state": (functools.partial(_admit, is_update=False), PUSH),
    "admit_or_drop": (functools.partial(_admit, is_update=True, drop_above=DROP_ABOVE), PUSH),
    "count_update": (_count_update, {"behind": PUSH["behind"]}),
    "count_update_or_drop": (
        functools.partial(_count_update, drop_above=DROP_ABOVE),
        {"behind": PUSH["behind"]},
    ),
    "count_update_of_member": (_count_update, {"behind": PUSH["behind"], "alive": TRUTH}),
    "count_update_of_member_or_drop": (
        functools.partial(_count_update, drop_above=DROP_ABOVE),
        {"behind": PUSH["behind"], "alive": TRUTH},
    ),
    "count_contribution": (
        _count_contribution,
        {"behind": PUSH["behind"], "alive": TRUTH, "in_time": TRUTH},
    ),
    "push_or_drop": (
        functools.partial(_push, is_update=True, hands_out=True, drop_above=DROP_ABOVE),
        REQUEST,
    ),
    "admit_to_round": (_admit_to_round, {**PUSH, "in_time": TRUTH}),
    "contribute": (functools.partial(_contribute, is_update=True), {**REQUEST, "in_time": TRUTH}),
    "close": (
        _with_alive(decide.close),
        {
            "alive": TRUTH,
            "slot": SLOT,
            "ticket": NUMBER,
            "steps": st.integers(1, 1 << 20),
            "examples": st.integers(0, 1 << 40),
        },
    ),
    "issue": (_with_alive(issuing.issue), {"alive": TRUTH, "slot": SLOT, "pushed": NUMBER}),
    "issue_several": (
        _several,
        {"alive": TRUTH, "slot": SLOT, "pushed": NUMBER, "quota": st.integers(1, 64)},
    ),
    "withdraw": (_plainly(issuing.withdraw), {"ticket": NUMBER}),
    "enter": (_plainly(decide.enter), {"slot": SLOT, "incarnation": NUMBER}),
    "dismiss": (_dismiss, {"slot": SLOT, "leaves": TRUTH, "closed": TRUTH}),
    "evict": (_plainly(decide.evict), {"slot": SLOT, "incarnation": NUMBER}),
    "finish": (_with_alive(decide.finish), {"alive": TRUTH, "slot": SLOT, "ticket": NUMBER}),
    "push": (functools.partial(_push, is_update=True, hands_out=True), REQUEST),
    "push_state": (functools.partial(_push, is_update=False, hands_out=False), REQUEST),
    "open_tickets": (_plainly(decide.open_tickets), {"count": st.integers(0, 1 << 60)}),
}


@st.composite
def _books(draw: st.DrawFn) -> list[int]:
    """Any books: not only those that a run can reach."""
    cells = BOOKS.blank()
    singly = range(1, BOOKS.GLOBALS + 8 * SLOTS)
    several = range(BOOKS.held_batches(0), BOOKS.pace(0) + SLOTS)
    for cell in [*singly, *several]:
        cells[cell] = draw(NUMBER)
    cells[BOOKS.RETURNED] = draw(st.integers(0, 2 * SLOTS))
    for slot in range(SLOTS):
        cells[BOOKS.active(slot)] = draw(TRUTH)
    return cells


def _on_integers(decision: Decision, cells: list[int], arguments: Arguments) -> list[int]:
    entries = Entries(books=BOOKS, read=lambda cell: cells[cell], logic=PlainLogic())
    answers = decision(entries, dict(arguments))
    after = list(cells)
    for cell, value in entries.writes:
        after[cell] = value
    for condition, cell, amount in entries.additions:
        after[cell] += amount if condition else 0
    return [*(int(answer) for answer in answers), *after[BOOKS.SCRATCH + 1 :]]


@functools.cache
def _on_tensors(name: str) -> Callable[..., tf.Tensor]:
    decision, parameters = DECISIONS[name]

    @tf.function(
        input_signature=[
            tf.TensorSpec([BOOKS.size], tf.int64),
            tf.TensorSpec([len(parameters)], tf.int64),
        ],
        autograph=False,
    )
    def decided(cells: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        entries = ServerEntries(BOOKS, cells)
        arguments = dict(zip(parameters, tf.unstack(values), strict=True))
        if "slot" in arguments:
            arguments["slot"] = entries.account(arguments["slot"])
        answers, after = decision(entries, arguments), cells
        if entries.writes:
            written, updates = writes(entries)
            after = tf.tensor_scatter_nd_update(after, written[:, None], updates)
        if entries.additions:
            added, amounts = additions(entries)
            after = tf.tensor_scatter_nd_add(after, added[:, None], amounts)
        answered = [tf.cast(answer, tf.int64) for answer in answers]
        return tf.concat([tf.reshape(answered, [-1]), after[BOOKS.SCRATCH + 1 :]], 0)

    return decided


@pytest.mark.parametrize("name", DECISIONS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_tensors_decide_as_integers(name: str, data: st.DataObject) -> None:
    decision, parameters = DECISIONS[name]
    cells = data.draw(_books())
    arguments = {parameter: data.draw(values) for parameter, values in parameters.items()}
    on_tensors = _on_tensors(name)(
        tf.constant(cells, tf.int64), tf.constant(list(arguments.values()), tf.int64)
    )
    assert on_tensors.numpy().tolist() == _on_integers(decision, cells, arguments)


def test_every_decision_is_compared() -> None:
    decisions = {**vars(decide), **vars(admission), **vars(issuing)}
    public = {name: value for name, value in decisions.items() if not name.startswith("_")}
    named = {name for name, value in public.items() if _decides(value)}
    compared = set(DECISIONS)
    for suffix in ("_or_drop", "_state", "_of_member"):
        compared = {name.removesuffix(suffix) for name in compared}
    assert named == compared - {"push", "contribute"}


def _decides(value: Any) -> bool:
    return callable(value) and getattr(value, "__annotations__", {}).get("entries") == "Entries"
