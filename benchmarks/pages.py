"""Puts runs of benchmarks on their pages: numbers, picture and machine of a page are of one run.

    python -m benchmarks.pages results/throughput.json   takes a run in
    python -m benchmarks.pages                           writes the pages anew from data/

A run is NAME.json with NAME.png beside it, as `python -m benchmarks NAME` writes them; they are
copied to data/ and pictures/, and the section "Result" of NAME.md is written from them. Where data/
has a NAME_before.json too, its numbers stand beside those of the run. What misses its aim is listed
in aims.md with the reason that data/reasons.json has for it; a new one must be written there first.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.short_tables import PAGES, markdown_table
from benchmarks.table import number_text

FOLDER = Path(__file__).resolve().parents[1] / "docs/benchmarks"
ALTERNATIVES = re.compile(r"^!\[(.*)\]\(pictures/\w+\.png\)$", re.M)
RESULT = re.compile(r"^## Result\n.*?^(?=## )", re.M | re.S)
MISSED = re.compile(r"(?<=<!-- from the data -->\n).*?(?=<!-- from older runs -->)", re.S)


@dataclass(frozen=True)
class Pages:
    """The pages of a folder, with its data and its pictures.

    Args:
        folder: docs/benchmarks.
    """

    folder: Path

    def reports(self) -> dict[str, Mapping[str, Any]]:
        """Return the run of each benchmark that has one."""
        paths = [self.folder / "data" / f"{name}.json" for name in PAGES]
        return {path.stem: json.loads(path.read_text()) for path in paths if path.exists()}

    def copy_run(self, run: Path) -> None:
        """Copy a run's numbers and its picture."""
        name, picture = json.loads(run.read_text())["benchmark"], run.with_suffix(".png")
        if picture.stat().st_mtime < run.stat().st_mtime:
            raise SystemExit(f"{picture} is older than {run}: expected the picture of this run")
        (self.folder / "data").mkdir(exist_ok=True)
        shutil.copyfile(run, self.folder / "data" / f"{name}.json")
        shutil.copyfile(picture, self.folder / "pictures" / f"{name}.png")

    def written(self) -> dict[Path, str]:
        """Return the text of each page that shows a run, by its path."""
        reports = self.reports()
        pages = {}
        for name, report in reports.items():
            path = self.folder / f"{name}.md"
            text = path.read_text()
            (alternative,) = ALTERNATIVES.findall(text)
            result = "\n".join(self._result(name, report, alternative))
            pages[path] = RESULT.sub(lambda _, new=result: f"{new}\n\n", text)  # type: ignore[misc]
        aims = self.folder / "aims.md"
        older = "\n".join(
            line
            for line in aims.read_text().splitlines()
            if not any(line.startswith("| [") and f"]({name}.md)" in line for name in reports)
        )
        missed = "".join(f"{line}\n" for line in self._missed(reports))
        pages[aims] = MISSED.sub(lambda _: missed, f"{older}\n")
        return pages

    def missed_without_reason(self) -> list[str]:
        """Missed aims of which data/reasons.json says nothing."""
        reasons = self._reasons()
        return [
            f"{name}: {bar['name']}"
            for name, report in self.reports().items()
            for bar in _missed_bars(report)
            if not reasons.get(name, {}).get(bar["name"])
        ]

    def _result(self, name: str, report: Mapping[str, Any], alternative: str) -> Iterator[str]:
        before = self.folder / "data" / f"{name}_before.json"
        yield from ("## Result", "")
        yield f"{_origin(report)} [All numbers](data/{name}.json)."
        yield from ("", f"![{alternative}](pictures/{name}.png)")
        for table in PAGES[name]:
            yield from table.lines(report["cases"])
        bars = [bar for bar in report["bars"] if bar["value"] is not None]
        if not bars:
            return
        headings, columns = ["aim", "is", "should be"], [bars]
        if before.exists():
            earlier = json.loads(before.read_text())
            found = {bar["name"]: bar for bar in earlier["bars"]}
            columns.insert(0, [found.get(bar["name"], {"value": None}) for bar in bars])
            headings.insert(1, f"[was](data/{before.name})")
        rows = [
            [bar["name"], *(_value(column[number]) for column in columns), _limit(bar)]
            for number, bar in enumerate(bars)
        ]
        yield from ("", "What has an aim; those that are missed [have their reasons](aims.md):", "")
        yield from markdown_table(headings, rows)

    def _missed(self, reports: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
        reasons = self._reasons()
        rows = [
            [
                f"[{name}]({name}.md)",
                bar["name"],
                _limit(bar),
                _value(bar),
                reasons.get(name, {}).get(bar["name"], ""),
            ]
            for name, report in reports.items()
            for bar in _missed_bars(report)
        ]
        if rows:
            yield ""
            yield from markdown_table(["benchmark", "what", "aim", "is", "why"], rows)
        yield ""

    def _reasons(self) -> dict[str, dict[str, str]]:
        path = self.folder / "data" / "reasons.json"
        reasons: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.exists() else {}
        return reasons


def _missed_bars(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [bar for bar in report["bars"] if bar["holds"] is False]


def _value(bar: Mapping[str, Any]) -> str:
    return "" if bar["value"] is None else number_text(bar["value"])


def _limit(bar: Mapping[str, Any]) -> str:
    return f"{'at most' if bar['is_cost'] else 'at least'} {bar['aim']:g}"


def _origin(report: Mapping[str, Any]) -> str:
    machine, versions = report["machine"], report["package_versions"]
    packages = {"TensorFlow": "tensorflow", "Keras": "keras", "Python": "python"}
    named = ", ".join(f"{title} {versions[name]}" for title, name in packages.items())
    repetitions = report["settings"]["repetitions"]
    busy = [case["other_cores"] for case in report["cases"] if "other_cores" in case]
    others = f" Other processes kept up to {max(busy):.2g} cores busy meanwhile." if busy else ""
    return (
        f"`python -m benchmarks {report['benchmark']}` on {machine['processor']} with "
        f"{machine['cores']} cores and {machine['memory_gib']:g} GiB; {named}; "
        f"repetitions: {repetitions}.{others}"
    )


def main(runs: Sequence[str]) -> None:
    """Copy runs to the pages' folder, and write the pages."""
    pages = Pages(FOLDER)
    for run in runs:
        pages.copy_run(Path(run))
    for path, text in pages.written().items():
        path.write_text(text)
        print(path)
    if missing := pages.missed_without_reason():
        lines = "\n".join(missing)
        raise SystemExit(f"Write the reasons of these missed aims in data/reasons.json:\n{lines}")


if __name__ == "__main__":
    main(sys.argv[1:])
