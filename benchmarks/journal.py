"""The results of turns in a file, so that a stopped run goes on behind the last of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import PACKAGES, describe_machine
from tfps.package_versions import package_versions

ANYTIME = ("load_average",)  # of a machine, what does not tell it from another


class TurnJournal:
    """Keeps what each turn has returned, one line of a file for each.

    A turn is the same if all that is said of it is, on the same machine with the same packages.
    Turns of one description are told apart by their order.

    Args:
        path: of the file, whose folder exists.
        is_resumed: whether turns that stand in it are kept; else it begins anew.
    """

    def __init__(self, path: Path, *, is_resumed: bool) -> None:
        self.path, self.kept = path, 0
        machine = {name: of for name, of in describe_machine().items() if name not in ANYTIME}
        self._description = {"machine": machine, "package_versions": package_versions(PACKAGES)}
        self._results: dict[str, list[Any]] = {}
        whole, _, _cut_off = self._text(is_resumed).rpartition("\n")
        path.write_text(f"{whole}\n" if whole else "")
        for line in whole.splitlines():
            entry = json.loads(line)
            self._results.setdefault(_key(entry["turn"]), []).append(entry["answer"])

    def get_or_measure(self, turn: Mapping[str, Any], measure: Callable[[], Any]) -> Any:
        """Return the kept result of the next turn of this description, or measure it and keep it.

        Args:
            turn: everything that the result depends on, as values of JSON.
            measure: returns the result; called if none is kept.
        """
        described = {**turn, **self._description}
        known = self._results.get(_key(described))
        if known:
            self.kept += 1
            return known.pop(0)
        result = measure()
        with self.path.open("a") as file:
            file.write(json.dumps({"turn": described, "answer": result}) + "\n")
        return result

    def _text(self, is_resumed: bool) -> str:
        return self.path.read_text() if is_resumed and self.path.exists() else ""


def _key(turn: Mapping[str, Any]) -> str:
    return json.dumps(turn, sort_keys=True)
