"""A push counts if the server has reached its version; any other changes nothing. Pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.consistency.plain_ledger import PlainLedger
from tfps.consistency.ledger import STALENESS_BINS, LedgerLayout, Status
from tfps.runtime.server.admission import (
    AdmitByVersion,
    PushTerms,
    PushVerdict,
    ReceivedPush,
    decide_push,
)
from tfps.transport.message import REQUEST_FIELDS, Request

LAYOUT = LedgerLayout(2)
PUSHED = st.lists(st.integers(0, 1 << 40), max_size=12)
DROPS = st.one_of(st.none(), st.integers(0, 3))


class Server(PlainLedger):
    """A server that takes each push that names a version."""

    layout = LAYOUT

    def __init__(self, *, drop_above: int | None) -> None:
        self.cells = LAYOUT.make_blank_cells()
        self.terms = PushTerms(AdmitByVersion(), is_update=True, drop_above=drop_above)

    def push(self, base_version: int) -> PushVerdict:
        header = [0] * REQUEST_FIELDS
        header[Request.BASE_VERSION] = base_version
        ledger = self.open()
        verdict = decide_push(
            ledger, self.terms, ReceivedPush(header, 0, matches_plan=True, alive=True)
        )
        self.write_changes(ledger)
        return verdict

    @property
    def version(self) -> int:
        return self.cells[LAYOUT.VERSION]


@given(versions=PUSHED, drop_above=DROPS)
def test_what_is_not_reached_is_refused(versions: list[int], drop_above: int | None) -> None:
    server, applied = Server(drop_above=drop_above), 0
    for named in (number % (applied + 3) for number in versions):
        before, verdict = list(server.cells), server.push(named)
        assert verdict.staleness == applied - named
        if named > applied:
            assert (verdict.status, verdict.fresh) == (Status.AHEAD, False)
            assert verdict.version == server.version == applied
            before[LAYOUT.DROPPED] += 1
            assert server.cells == before
            continue
        is_late = drop_above is not None and applied - named > drop_above
        assert verdict.status == (Status.LATE if is_late else Status.OK)
        assert verdict.fresh == (not is_late)
        applied += not is_late
        assert verdict.version == server.version == applied
    assert sum(server.cells[LAYOUT.staleness(0) : LAYOUT.staleness(STALENESS_BINS)]) == applied
