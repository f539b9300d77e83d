"""The lines of a report: one program in one process and under tfps, side by side."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Report:
    """Prints each comparison as it is made, and counts those that are wrong.

    A module of this folder has a function `compare(report)`, which runs one program that users
    reported: in one process, then on local clusters.
    """

    right: int = 0
    wrong: int = 0

    def line(self, case: str, *, expected: object, got: object, equal: bool | None = None) -> None:
        """Print one comparison.

        Args:
            case: What was run, for example "2 workers, asynchronous".
            expected: The result of one process.
            got: The result of tfps.
            equal: Whether the two agree; by default, whether `expected == got`.
        """
        agree = expected == got if equal is None else equal
        self.right += agree
        self.wrong += not agree
        mark = "" if agree else "   WRONG"
        print(f"{case}: expected {expected}, tfps {got}{mark}", flush=True)
