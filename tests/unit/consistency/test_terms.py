"""A server obeys one chief at a time: the newest that has taken the job over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.consistency.ledger_model import ServerModel
from tfps.consistency import chief_requests
from tfps.consistency import ledger as decide
from tfps.consistency.chief_requests import REPLACED
from tfps.consistency.ledger import TERM_INCARNATIONS

CHIEFS = st.integers(1, 4)
ACTS = st.lists(
    st.tuples(st.sampled_from(["take over", "open", "limit"]), CHIEFS, st.integers(0, 9)),
    max_size=20,
)


def _decided(server: ServerModel, decision: Callable[..., Any], **arguments: int) -> int:
    ledger = server.open()
    result = int(decision(ledger, **arguments))
    server.write_changes(ledger)
    return result


@given(acts=ACTS)
def test_the_newest_chief_alone_is_obeyed(acts: list[tuple[str, int, int]]) -> None:
    server = ServerModel(index=0, workers=2, calls=(True,))
    layout, obeyed = server.layout, 0
    for move, (act, term, number) in enumerate(acts, start=1):
        before = list(server.cells)
        if act == "take over":
            result = _decided(server, chief_requests.claim_job, term=term)
            assert result == (term if term > obeyed else REPLACED)
            obeyed = max(obeyed, term)
            continue
        if act == "open":
            result = _decided(
                server, chief_requests.open_tickets, term=term, count=number, move=move
            )
        else:
            result = _decided(server, chief_requests.move_limit, term=term, limit=number, move=move)
        if term == obeyed:
            assert result == before[layout.NEXT]
            expected = number if act == "limit" else result + number
            assert server.cells[layout.LIMIT] == expected
        else:
            assert result == REPLACED
            assert server.cells[layout.SCRATCH + 1 :] == before[layout.SCRATCH + 1 :]


@given(term=st.integers(1, 1 << 20), before=st.integers(1, TERM_INCARNATIONS - 1))
def test_a_worker_of_the_chief_before_stays_out(term: int, before: int) -> None:
    """Also one that has not joined yet; a worker of the new chief comes in."""
    server = ServerModel(index=0, workers=2, calls=(True,))
    old = (term - 1) * TERM_INCARNATIONS + before
    assert _decided(server, decide.enter, worker=0, incarnation=old)
    for worker in (0, 1):
        server.evict(worker, term * TERM_INCARNATIONS)
        assert not _decided(server, decide.enter, worker=worker, incarnation=old)
        assert _decided(
            server, decide.enter, worker=worker, incarnation=term * TERM_INCARNATIONS + 1
        )
