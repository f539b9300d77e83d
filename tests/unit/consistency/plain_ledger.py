"""A server's ledger as plain numbers, which decisions change as they change the server's."""

from __future__ import annotations

from typing import Any

from tfps.consistency.ledger import Ledger, LedgerLayout
from tfps.consistency.logic import PlainLogic


class PlainLedger:
    """Cells that a decision reads, and that are changed when it has decided."""

    layout: LedgerLayout
    cells: list[int]

    def open(self) -> Ledger:
        return Ledger(layout=self.layout, read=self._read, logic=PlainLogic())

    def _read(self, cell: int) -> int:
        assert 0 <= cell < self.layout.size
        return self.cells[cell]

    def write_changes(self, ledger: Ledger) -> None:
        """Make all changes at once: the order of a scatter is not defined, so none may collide."""
        written = [cell for cell, _ in ledger.writes if cell != LedgerLayout.SCRATCH]
        assert len(set(written)) == len(written), f"a cell was written twice: {written}"
        for cell, value in ledger.writes:
            assert 0 <= cell < self.layout.size
            self.cells[cell] = value
        for condition, cell, amount in ledger.additions:
            assert 0 <= cell < self.layout.size
            assert cell not in written, f"a cell was written and added to: {cell}"
            self.cells[cell] += amount if condition else 0

    def do(self, decision: Any, **arguments: Any) -> Any:
        """Decide, and make the changes."""
        ledger = self.open()
        result = decision(ledger, **arguments)
        self.write_changes(ledger)
        return result
