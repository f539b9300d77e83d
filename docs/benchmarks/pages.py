"""Puts runs of benchmarks on their pages: numbers, picture and machine of a page are of one run.

    python docs/benchmarks/pages.py results/throughput.json   takes a run in
    python docs/benchmarks/pages.py                           writes the pages anew from data/

A run is NAME.json with NAME.png beside it, as `tfps bench NAME` writes them; they are copied to
data/ and pictures/, and the section "Result" of NAME.md is written from them. Where data/ has a
NAME_before.json too, its numbers stand beside those of the run. What misses its aim is listed in
aims.md with the reason that data/reasons.json has for it; a new one must be written there first.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfps.bench import model_shapes
from tfps.bench.batch_choice import period_title
from tfps.bench.checkpoint import TITLES as CHECKPOINT_TITLES
from tfps.bench.contestants import CONTESTANTS
from tfps.bench.modes import ALL_MODES, COUNTED, TITLES
from tfps.bench.placement import WAYS
from tfps.bench.recovery import MOMENTS
from tfps.bench.recovery import TITLES as RECOVERY_TITLES
from tfps.bench.strategies import CANNOT, shape_title
from tfps.bench.strategy_rows import ROWS as STRATEGY_ROWS
from tfps.bench.table import number_text
from tfps.bench.throughput_rows import ROWS
from tfps.bench.throughput_shapes import shape_at
from tfps.bench.transport import CARRIERS, WORK, size_text

FOLDER = Path(__file__).parent
Entry = Mapping[str, Any]  # a case of a report
SERVERS_SHOWN = 8  # of the placement's; more and less are in the data


@dataclass(frozen=True)
class ShortTable:
    """Some cases and some of what was measured of them.

    Args:
        text: above the table.
        row: the name of a case's row, None of a case that is left out; cases may share one.
        cells: by the heading of the column.
    """

    text: str
    row: Callable[[Entry], str | None]
    cells: Callable[[Entry], Mapping[str, str]]

    def lines(self, entries: Iterable[Entry]) -> Iterator[str]:
        """The table in Markdown, with what was measured in the order of the report."""
        rows: dict[str, dict[str, str]] = {}
        for entry in entries:
            name = self.row(entry)
            if name is not None:
                rows.setdefault(name, {}).update(self.cells(entry))
        headings = list(dict.fromkeys(heading for cells in rows.values() for heading in cells))
        if headings:
            yield from ("", self.text, "")
            body = [[name, *(cells.get(h, "") for h in headings)] for name, cells in rows.items()]
            yield from markdown_table(["", *headings], body)


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table in Markdown."""
    for cells in (headings, ["---"] * len(headings), *rows):
        yield f"| {' | '.join(cells)} |"


def median(entry: Entry, quantity: str) -> str:
    """The middle of what was measured; nothing where an older run did not measure it."""
    return number_text(entry[quantity]["median"]) if quantity in entry else ""


def _shape(entry: Entry) -> str:
    return shape_at({name: entry[name] for name in ("model", "workers", "ps")}).title


def _throughput_row(entry: Entry) -> str | None:
    shape = shape_at({name: entry[name] for name in ("model", "workers", "ps")})
    is_longest = entry["steps_per_execution"] == max(shape.lengths or (50,))
    return ROWS[entry["row"]].title if is_longest else None


def _beginning_cells(entry: Entry) -> Mapping[str, str]:
    if "memory_mib" not in entry:
        return {}
    memory = {role: number_text(mib["median"]) for role, mib in entry["memory_mib"].items()}
    seconds = median(entry, "seconds_to_first_step")
    return {_shape(entry): f"{seconds} s; {' / '.join(memory.values())} MiB"}


def _work_row(entry: Entry) -> str | None:
    size = entry["size_bytes"]
    if entry["carrier"] != "unix" or size not in WORK or entry["row"] not in WORK[size]:
        return None
    return f"{size_text(size)}: {WORK[size][entry['row']]}"


def _exchange_cells(entry: Entry) -> Mapping[str, str]:
    quantities = {"ms": "ms_per_exchange", "CPU ms": "cpu_ms_per_exchange"}
    quantities["of the server"] = "ps_cpu_ms_per_exchange"
    return {heading: median(entry, quantity) for heading, quantity in quantities.items()}


def _goal_text(entry: Entry) -> str:
    times_s = list(entry["seconds_to_goal"].values())
    missed = times_s.count(None)
    return f"missed by {missed} of {len(times_s)}" if missed else _middle(times_s)


def _middle(values: Iterable[float]) -> str:
    return number_text(statistics.median(values))


def _mode_cells(entry: Entry) -> Mapping[str, str]:
    accuracy = f"{_middle(100 * value for value in entry['final_accuracy'].values())} %"
    if entry["scenario"] == COUNTED:
        return {"bytes per example": median(entry, "bytes_per_example"), "accuracy": accuracy}
    title = TITLES[entry["scenario"]]
    return {title: f"{median(entry, 'updates_per_s')} updates/s, {accuracy}"}


def _strategy_cells(entry: Entry) -> Mapping[str, str]:
    title = shape_title(entry["model"], entry["workers"])
    if CANNOT in entry:
        return {title: "; ".join(entry[CANNOT])}
    accuracy = f"{_middle(100 * value for value in entry['accuracy'].values())} %"
    return {title: f"{median(entry, 'examples_per_s')}; {accuracy}"}


def _optimizer_row(entry: Entry) -> str:
    names = dict.fromkeys((entry["base"], entry["optimizer"]))
    return ", ".join(CONTESTANTS[name].title for name in names)


def _gain_text(entry: Entry) -> str:
    gain = entry["minus_plain"]
    if gain is None:
        return ""
    return "{:+.2f} ({:+.2f} to {:+.2f})".format(*(100 * gain[k] for k in ("mean", "low", "high")))


PAGES: Mapping[str, Sequence[ShortTable]] = {
    "batch": [
        ShortTable(
            "Seconds to the accuracy, and examples per second:",
            lambda entry: f"batch {entry['batch_size']}",
            lambda entry: {
                period_title(entry["period_steps"]): (
                    f"{_goal_text(entry)}; {median(entry, 'examples_per_s')}"
                )
            },
        )
    ],
    "checkpoint": [
        ShortTable(
            "Medians; memory is by how much a process grew:",
            lambda entry: f"{entry['what']}: {CHECKPOINT_TITLES[entry['way']]}, {entry['ps']} ps",
            lambda entry: {
                "seconds": median(entry, "seconds"),
                "training rests, s": median(entry, "pause_s"),
                "chief, MiB": median(entry, "chief_mib"),
                "server, MiB": median(entry, "server_mib"),
            },
        )
    ],
    "consistency": [
        ShortTable(
            "Updates per second, and the test accuracy at the end:",
            lambda entry: ALL_MODES[entry["mode"]].title,
            _mode_cells,
        )
    ],
    "placement": [
        ShortTable(
            f"Bytes of the fullest of {SERVERS_SHOWN} servers over the mean:",
            lambda entry: (
                model_shapes.MODELS[entry["model"]].title
                if entry.get("servers") == SERVERS_SHOWN
                else None
            ),
            lambda entry: {WAYS[entry["way"]].title: f"{entry['bytes_imbalance']:.2f}"},
        )
    ],
    "recovery": [
        ShortTable(
            "Seconds from the kill:",
            lambda entry: RECOVERY_TITLES[entry["what"]] if "restored_s" in entry else None,
            lambda entry: {title: median(entry, name) for name, title in MOMENTS.items()},
        ),
        ShortTable(
            "The same with two workers, of which one is killed:",
            lambda entry: RECOVERY_TITLES[entry["what"]] if "pause_s" in entry else None,
            lambda entry: {
                "the other rests": median(entry, "pause_s"),
                "trains again": median(entry, "trains_s"),
            },
        ),
        ShortTable(
            "CPU ms per step while nothing happens:",
            lambda entry: RECOVERY_TITLES[entry["what"]] if "cpu_ms_per_step" in entry else None,
            lambda entry: {"CPU ms per step": median(entry, "cpu_ms_per_step")},
        ),
    ],
    "rows": [
        ShortTable(
            "Steps per second, and CPU ms per step:",
            lambda entry: f"{entry['optimizer']}, {entry['mib']} MiB",
            lambda entry: {
                "rows of the batch" if entry["by_rows"] else "all rows": (
                    f"{median(entry, 'steps_per_s')}; {median(entry, 'cpu_ms_per_step')}"
                )
            },
        )
    ],
    "scaling": [
        ShortTable(
            "Medians; a push is one message to one server:",
            lambda entry: f"{entry['workers']} worker{'s' if entry['workers'] > 1 else ''}",
            lambda entry: {
                "steps/s": median(entry, "steps_per_s"),
                "share kept": f"{entry['share_kept']:.2f}",
                "server CPU ms per push": median(entry, "server_cpu_ms_per_push"),
            },
        )
    ],
    "staleness": [
        ShortTable(
            "Test accuracy, and the difference from the plain optimizer in points:",
            _optimizer_row,
            lambda entry: {
                "learning rate": f"{entry['learning_rate']:g}",
                "accuracy, %": number_text(100 * entry["test_accuracy"]["median"]),
                "minus plain": _gain_text(entry),
            },
        )
    ],
    "strategies": [
        ShortTable(
            "Examples per second, and the test accuracy after equal examples:",
            lambda entry: STRATEGY_ROWS[entry["row"]].title,
            _strategy_cells,
        ),
        ShortTable(
            "What a strategy asks of who uses it:",
            lambda entry: STRATEGY_ROWS[entry["row"]].title,
            lambda entry: {
                "lines changed": str(entry["lines_changed"]),
                "of the cluster": entry["needs"],
            },
        ),
    ],
    "throughput": [
        ShortTable(
            "Steps per second, and CPU ms per step, at the longest execution:",
            _throughput_row,
            lambda entry: {
                _shape(entry): f"{median(entry, 'steps_per_s')}; {median(entry, 'cpu_ms_per_step')}"
            },
        ),
        ShortTable(
            "Seconds from making the model to the end of the first execution; the most memory of "
            "the chief, a worker and a server:",
            lambda entry: _throughput_row(entry) if entry["row"].split("_")[-1] == "fit" else None,
            _beginning_cells,
        ),
    ],
    "transport": [
        ShortTable(
            "Milliseconds of one exchange:",
            lambda entry: size_text(entry["size_bytes"]) if entry["row"] == "echo" else None,
            lambda entry: {CARRIERS[entry["carrier"]].title: median(entry, "ms_per_exchange")},
        ),
        ShortTable(
            "What a server does with a message, over a unix socket:", _work_row, _exchange_cells
        ),
    ],
}
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
        """The run of each benchmark that has one."""
        paths = [self.folder / "data" / f"{name}.json" for name in PAGES]
        return {path.stem: json.loads(path.read_text()) for path in paths if path.exists()}

    def take(self, run: Path) -> None:
        """Copy a run's numbers and its picture."""
        name, picture = json.loads(run.read_text())["benchmark"], run.with_suffix(".png")
        if picture.stat().st_mtime < run.stat().st_mtime:
            raise SystemExit(f"{picture} is older than {run}: expected the picture of this run")
        (self.folder / "data").mkdir(exist_ok=True)
        shutil.copyfile(run, self.folder / "data" / f"{name}.json")
        shutil.copyfile(picture, self.folder / "pictures" / f"{name}.png")

    def written(self) -> dict[Path, str]:
        """What each page that shows a run has to say, by its path."""
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

    def without_reason(self) -> list[str]:
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
    busy = max((case.get("other_cores", 0.0) for case in report["cases"]), default=0.0)
    return (
        f"`tfps bench {report['benchmark']}` on {machine['processor']} with {machine['cores']} "
        f"cores and {machine['memory_gib']:g} GiB; {named}; repetitions: {repetitions}. Other "
        f"processes kept up to {busy:.2g} cores busy meanwhile."
    )


def main(runs: Sequence[str]) -> None:
    """Take runs in, and write the pages anew."""
    pages = Pages(FOLDER)
    for run in runs:
        pages.take(Path(run))
    for path, text in pages.written().items():
        path.write_text(text)
        print(path)
    if missing := pages.without_reason():
        lines = "\n".join(missing)
        raise SystemExit(f"Write the reasons of these missed aims in data/reasons.json:\n{lines}")


if __name__ == "__main__":
    main(sys.argv[1:])
