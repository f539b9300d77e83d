"""The decisions on tensors, as servers run them, are those on integers, as the tests prove them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import tensorflow as tf
from hypothesis import given, settings

from tests.scaled_examples import scaled_examples
from tfps.consistency import chief_requests, issuing
from tfps.consistency import ledger as decide
from tfps.consistency.ledger import MAX_CALLS, STALENESS_BINS, Ledger, LedgerLayout
from tfps.consistency.logic import PlainLogic
from tfps.consistency.server_ledger import GraphLedger, collect_additions, collect_writes
from tfps.runtime.server.admission import (
    AdmitAll,
    AdmitByFunction,
    AdmitByMember,
    AdmitByTicket,
    AdmitByVersion,
    PushTerms,
    ReceivedPush,
    decide_push,
)
from tfps.transport.message import REQUEST_FIELDS, Request

WORKERS = 2
LAYOUT = LedgerLayout(WORKERS)
WORKER = st.integers(0, WORKERS - 1)
TRUTH = st.integers(0, 1)
# Few values, so that tickets, incarnations and versions often agree.
NUMBER = st.integers(-1, 3)
DROP_ABOVE = STALENESS_BINS // 2

Arguments = dict[str, Any]
Decision = Callable[[Ledger, Arguments], list[Any]]


def _judge(ledger: Ledger, arguments: Arguments, *, terms: PushTerms) -> list[Any]:
    header: list[Any] = [0] * REQUEST_FIELDS
    header[Request.CLOSED_STEPS] = 1
    header[Request.TICKET], header[Request.ACKED_TICKET] = arguments["ticket"], arguments["closes"]
    header[Request.EXAMPLES] = arguments["examples"]
    # By how many updates it is behind, or by how many rounds.
    now = 0 if terms.in_rounds else ledger.read(LAYOUT.VERSION)
    behind = arguments["behind"] * (MAX_CALLS if terms.in_rounds else 1)
    header[Request.BASE_VERSION] = now - behind
    knows = terms.admission.knows_senders
    verdict = decide_push(
        ledger,
        terms,
        ReceivedPush(
            header,
            arguments["worker"],
            matches_plan=arguments["is_ours"] == 1 if knows else True,
            alive=ledger.is_alive(arguments["worker"], arguments["incarnation"]) if knows else True,
            in_time=arguments["in_time"] == 1 if terms.in_rounds else True,
            position=now,
            applied_key=arguments["applied_key"],
        ),
    )
    return [value for value in vars(verdict).values() if value is not None]


def _dismiss(ledger: Ledger, arguments: Arguments) -> list[Any]:
    truths = {name: arguments.pop(name) == 1 for name in ("leaves", "closed")}
    decide.remove(ledger, **arguments, **truths)
    return [0]  # it has no result


def _with_alive(decision: Callable[..., Any]) -> Decision:
    def decided(ledger: Ledger, arguments: Arguments) -> list[Any]:
        return [decision(ledger, alive=arguments.pop("alive") == 1, **arguments)]

    return decided


def _plainly(decision: Callable[..., Any]) -> Decision:
    return lambda ledger, arguments: [decision(ledger, **arguments)]


PUSH = {
    "worker": WORKER,
    "is_ours": TRUTH,
    "in_time": TRUTH,
    "incarnation": NUMBER,
    "ticket": NUMBER,
    "closes": NUMBER,
    "examples": st.integers(0, 1 << 40),
    "behind": st.integers(0, 2 * STALENESS_BINS),
    "applied_key": st.integers(-1, 4 * MAX_CALLS),
}
LAST, EARLIER = AdmitByTicket(1, issues_tickets=True), AdmitByTicket(1, issues_tickets=False)
TERMS = {
    "push": PushTerms(LAST, is_update=True),
    "push_or_drop": PushTerms(LAST, is_update=True, drop_above=DROP_ABOVE),
    "push_state": PushTerms(EARLIER, is_update=False, counts_as_update=False),
    "push_to_round": PushTerms(LAST, is_update=True, in_rounds=True),
    "push_state_to_round": PushTerms(
        EARLIER, is_update=False, counts_as_update=False, in_rounds=True
    ),
    "push_of_function": PushTerms(AdmitByFunction(), is_update=True),
    "push_of_function_or_drop": PushTerms(AdmitByFunction(), is_update=True, drop_above=DROP_ABOVE),
    "push_of_member": PushTerms(AdmitByMember(), is_update=True),
    "push_of_member_or_drop": PushTerms(AdmitByMember(), is_update=True, drop_above=DROP_ABOVE),
    "push_of_member_to_round": PushTerms(AdmitByMember(), is_update=True, in_rounds=True),
    "push_of_anyone": PushTerms(AdmitAll(), is_update=True),
    "push_of_anyone_or_drop": PushTerms(AdmitAll(), is_update=True, drop_above=DROP_ABOVE),
}
VERSION_TERMS = {
    "push_by_version": PushTerms(AdmitByVersion(), is_update=True),
    "push_by_version_or_drop": PushTerms(AdmitByVersion(), is_update=True, drop_above=DROP_ABOVE),
}
# It may also be ahead.
PUSH_BY_VERSION = {**PUSH, "behind": st.integers(-(1 << 40), 2 * STALENESS_BINS)}
DECISIONS: dict[str, tuple[Decision, dict[str, Any]]] = {
    **{name: (functools.partial(_judge, terms=terms), PUSH) for name, terms in TERMS.items()},
    **{
        name: (functools.partial(_judge, terms=terms), PUSH_BY_VERSION)
        for name, terms in VERSION_TERMS.items()
    },
    "close": (
        _with_alive(decide.close),
        {
            "alive": TRUTH,
            "worker": WORKER,
            "ticket": NUMBER,
            "steps": st.integers(1, 1 << 20),
            "examples": st.integers(0, 1 << 40),
        },
    ),
    "issue": (_with_alive(issuing.issue), {"alive": TRUTH, "worker": WORKER, "pushed": NUMBER}),
    "withdraw_ticket": (_plainly(issuing.withdraw_ticket), {"ticket": NUMBER}),
    "enter": (_plainly(decide.enter), {"worker": WORKER, "incarnation": NUMBER}),
    "remove": (_dismiss, {"worker": WORKER, "leaves": TRUTH, "closed": TRUTH}),
    "evict": (_plainly(decide.evict), {"worker": WORKER, "incarnation": NUMBER}),
    "finish": (_with_alive(decide.finish), {"alive": TRUTH, "worker": WORKER, "ticket": NUMBER}),
    "open_tickets": (
        _plainly(chief_requests.open_tickets),
        {"count": st.integers(0, 1 << 60), "term": NUMBER, "move": NUMBER},
    ),
    "move_limit": (
        _plainly(chief_requests.move_limit),
        {"limit": NUMBER, "term": NUMBER, "move": NUMBER},
    ),
    "end_rounds": (
        _plainly(chief_requests.end_rounds),
        {"first": NUMBER, "together": st.integers(1, 64), "term": NUMBER, "move": NUMBER},
    ),
    "come_home": (_plainly(chief_requests.come_home), {"updates": NUMBER}),
    "count_up_to": (_plainly(chief_requests.count_up_to), {"version": NUMBER}),
    "expect": (_plainly(chief_requests.expect), {"number": NUMBER}),
    "claim_job": (_plainly(chief_requests.claim_job), {"term": NUMBER}),
}


@st.composite
def _books(draw: st.DrawFn) -> list[int]:
    """Any ledger: not only those that a run can reach."""
    cells = LAYOUT.make_blank_cells()
    paces = range(LAYOUT.pace(0), LAYOUT.pace(0) + WORKERS)
    for cell in [*range(1, LAYOUT.GLOBALS + 8 * WORKERS), *paces]:
        cells[cell] = draw(NUMBER)
    cells[LAYOUT.RETURNED] = draw(st.integers(0, 2 * WORKERS))
    for worker in range(WORKERS):
        cells[LAYOUT.active(worker)] = draw(TRUTH)
    return cells


def _on_integers(decision: Decision, cells: list[int], arguments: Arguments) -> list[int]:
    ledger = Ledger(layout=LAYOUT, read=lambda cell: cells[cell], logic=PlainLogic())
    results = decision(ledger, dict(arguments))
    after = list(cells)
    for cell, value in ledger.writes:
        after[cell] = value
    for condition, cell, amount in ledger.additions:
        after[cell] += amount if condition else 0
    return [*(int(result) for result in results), *after[LAYOUT.SCRATCH + 1 :]]


@functools.cache
def _on_tensors(name: str) -> Callable[..., tf.Tensor]:
    decision, parameters = DECISIONS[name]

    @tf.function(
        input_signature=[
            tf.TensorSpec([LAYOUT.size], tf.int64),
            tf.TensorSpec([len(parameters)], tf.int64),
        ],
        autograph=False,
    )
    def decided(cells: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        ledger = GraphLedger(LAYOUT, cells)
        arguments = dict(zip(parameters, tf.unstack(values), strict=True))
        results, after = decision(ledger, arguments), cells
        if ledger.writes:
            written, updates = collect_writes(ledger)
            after = tf.tensor_scatter_nd_update(after, written[:, None], updates)
        if ledger.additions:
            added, amounts = collect_additions(ledger)
            after = tf.tensor_scatter_nd_add(after, added[:, None], amounts)
        answered = [tf.cast(result, tf.int64) for result in results]
        return tf.concat([tf.reshape(answered, [-1]), after[LAYOUT.SCRATCH + 1 :]], 0)

    return decided


@pytest.mark.parametrize("name", DECISIONS)
@settings(max_examples=scaled_examples(60), deadline=None)
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
    decisions = {**vars(decide), **vars(chief_requests), **vars(issuing), "judge": decide_push}
    public = {name: value for name, value in decisions.items() if not name.startswith("_")}
    named = {name for name, value in public.items() if _decides(value)}
    assert named == (set(DECISIONS) - {*TERMS, *VERSION_TERMS}) | {"judge"}


def _decides(value: Any) -> bool:
    return callable(value) and getattr(value, "__annotations__", {}).get("ledger") == "Ledger"
