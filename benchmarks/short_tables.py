"""The short tables of each page, by the name of its benchmark: which numbers stand where."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import model_shapes
from benchmarks.categories import IDS
from benchmarks.checkpoint import TITLES as CHECKPOINT_TITLES
from benchmarks.contestant_runs import SYNCHRONOUS
from benchmarks.embedding_rows import ROWS as EMBEDDING_ROWS
from benchmarks.exchange import Exchange
from benchmarks.interval import Interval, points_text
from benchmarks.modes import ALL_MODES, COUNTED, SCENARIOS
from benchmarks.network_rows import (
    ACCURACY,
    FINE_TUNED,
    LARGE,
    SMALL_MODELS,
    STEPS,
    link_title,
    model_title,
)
from benchmarks.network_rows import WAYS as NETWORK_WAYS
from benchmarks.placement import WAYS
from benchmarks.recovery import MOMENTS
from benchmarks.recovery import TITLES as RECOVERY_TITLES
from benchmarks.staleness import FORCED, SLOW, title_with_base
from benchmarks.strategy_cells import (
    asks_cells,
    slow_cells,
    strategy_row,
    task_cells,
    trained_cells,
)
from benchmarks.strategy_rows import ROWS as STRATEGY_ROWS
from benchmarks.table import number_text
from benchmarks.throughput_shapes import ROWS, shape_at
from benchmarks.transport import TRANSPORTS, WORK, size_text
from tfps.units import counted

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
        """Yield the table in Markdown, with what was measured in the order of the report."""
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
    """Yield a table in Markdown."""
    for cells in (headings, ["---"] * len(headings), *rows):
        yield f"| {' | '.join(cells)} |"


def median(entry: Entry, quantity: str) -> str:
    """Return the median of a quantity as text; empty if it was not measured."""
    return number_text(entry[quantity]["median"]) if quantity in entry else ""


def _rate_and_cpu(entry: Entry) -> str:
    return f"{median(entry, 'steps_per_s')}; {median(entry, 'cpu_ms_per_step')}"


def _throughput_row(entry: Entry) -> str | None:
    is_longest = entry["steps_per_execution"] == max(shape_at(entry).lengths)
    return ROWS[entry["row"]].title if is_longest else None


def _beginning_cells(entry: Entry) -> Mapping[str, str]:
    if "memory_mib" not in entry:
        return {}
    memory = {role: number_text(mib["median"]) for role, mib in entry["memory_mib"].items()}
    seconds = median(entry, "seconds_to_first_step")
    return {shape_at(entry).title: f"{seconds} s; {' / '.join(memory.values())} MiB"}


def _work_row(entry: Entry) -> str | None:
    size = entry["size_bytes"]
    if entry["transport"] != "unix" or size not in WORK or entry["row"] not in WORK[size]:
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
    title = SCENARIOS[entry["scenario"]].title
    return {title: f"{median(entry, 'updates_per_s')} updates/s, {accuracy}"}


def _network_row(models: Collection[str]) -> Callable[[Entry], str | None]:
    def row(entry: Entry) -> str | None:
        is_here = entry["part"] == STEPS and entry["model"] in models
        title, way = model_title(entry["model"]), NETWORK_WAYS[entry["way"]]
        return f"{title}, {way.title}" if is_here else None

    return row


def _network_cells(entry: Entry) -> Mapping[str, str]:
    found = {link_title(entry["rate"]): median(entry, "steps_per_s")}
    for way in ("up", "down"):
        count = entry[f"{way}_bytes_per_step"]
        found[f"MB {way}"] = "" if count is None else number_text(count / 1e6)
    return found


def _training_cells(entry: Entry) -> Mapping[str, str]:
    accuracies = entry["final_accuracy"].values()
    return {
        "accuracy, %": _middle(100 * accuracy for accuracy in accuracies),
        "points more": _points(entry["accuracy_gained"]),
        "MB": number_text(entry["moved_bytes"]["median"] / 1e6),
        **{
            f"s, {link_title(int(rate))}": number_text(seconds["median"])
            for rate, seconds in entry["seconds_at"].items()
        },
    }


def _optimizer_row(scenario: str) -> Callable[[Entry], str | None]:
    def row(entry: Entry) -> str | None:
        return title_with_base(entry["optimizer"]) if entry["scenario"] == scenario else None

    return row


def _points(difference: Mapping[str, float] | None) -> str:
    return "" if difference is None else points_text(Interval(**difference))


def _embedding_row(ids: str) -> Callable[[Entry], str | None]:
    def row(entry: Entry) -> str | None:
        if entry["ids"] != ids:
            return None
        return f"{EMBEDDING_ROWS[entry['row']].title}, {entry['steps_per_execution']} per execution"

    return row


def _embedding_shape(entry: Entry) -> str:
    return f"{counted(entry['tables'], 'table')}, {counted(entry['workers'], 'worker')}"


def _embedding_bytes(entry: Entry) -> Mapping[str, str]:
    over, imbalance = entry["bytes_over_rows"], entry["imbalance"]
    return {f"{_embedding_shape(entry)}, {IDS[entry['ids']]}": f"{over:.2f}; {imbalance:.2f}"}


PAGES: Mapping[str, Sequence[ShortTable]] = {
    "batch": [
        ShortTable(
            "Seconds to the accuracy, and examples per second:",
            lambda entry: f"batch {entry['batch_size']}",
            lambda entry: {
                Exchange(entry["kind"], entry["period_steps"]).title: (
                    f"{_goal_text(entry)}; {median(entry, 'examples_per_s')}"
                )
            },
        ),
        ShortTable(
            "Bytes per example:",
            lambda entry: f"batch {entry['batch_size']}",
            lambda entry: {
                Exchange(entry["kind"], entry["period_steps"]).title: (
                    median(entry, "bytes_per_example")
                )
            },
        ),
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
    "embedding": [
        *(
            ShortTable(
                f"Steps per second, and CPU ms per step, with {title}:",
                _embedding_row(ids),
                lambda entry: {_embedding_shape(entry): _rate_and_cpu(entry)},
            )
            for ids, title in IDS.items()
        ),
        ShortTable(
            "Bytes of a step over those of its distinct rows both ways; those of the busiest "
            "server over the mean:",
            lambda entry: (
                EMBEDDING_ROWS[entry["row"]].title
                if entry["bytes_per_step"] and entry["steps_per_execution"] > 1
                else None
            ),
            _embedding_bytes,
        ),
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
            lambda entry: {str(m.heading): median(entry, m.key) for m in MOMENTS},
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
        *(
            ShortTable(
                f"{title}: test accuracy, and differences in points, seed by seed:",
                _optimizer_row(scenario),
                lambda entry: {
                    "learning rate": f"{entry['learning_rate']:g}",
                    "accuracy, %": number_text(100 * entry["test_accuracy"]["median"]),
                    "minus synchronous": _points(entry["minus_synchronous"]),
                    "minus plain": _points(entry["minus_plain"]),
                },
            )
            for scenario, title in {
                SYNCHRONOUS: "Nothing stale",
                FORCED: "Every gradient stale",
                SLOW: "One slow worker",
            }.items()
        )
    ],
    "network": [
        ShortTable(
            "Steps per second; megabytes of a step, up and down:",
            _network_row(SMALL_MODELS),
            _network_cells,
        ),
        ShortTable(
            "The same with 64 MB of parameters:", _network_row((LARGE, FINE_TUNED)), _network_cells
        ),
        ShortTable(
            "CPU milliseconds of a step, all tasks together, without limit:",
            lambda entry: (
                NETWORK_WAYS[entry["way"]].title
                if entry["part"] == STEPS and not entry["rate"]
                else None
            ),
            lambda entry: {model_title(entry["model"]): median(entry, "cpu_ms_per_step")},
        ),
        ShortTable(
            "Trainings of the CNN: accuracy at the end, by how much it is above that without a "
            "codec, megabytes of all workers both ways, and the seconds that they take:",
            lambda entry: NETWORK_WAYS[entry["way"]].title if entry["part"] == ACCURACY else None,
            _training_cells,
        ),
    ],
    "strategies": [
        ShortTable(
            "Examples per second, the test accuracy after equal examples, and seconds of training "
            "to the goal; medians (minimum-maximum) of the seeds:",
            strategy_row(lambda shape: not shape.is_slow),
            trained_cells,
        ),
        ShortTable(
            "What tasks use. Bytes are those that the sockets of workers send and receive:",
            strategy_row(lambda shape: shape.has_seeds),
            task_cells,
        ),
        ShortTable(
            "Steps that wait 50 ms, in examples per second:",
            strategy_row(lambda shape: shape.is_slow),
            slow_cells,
        ),
        ShortTable(
            "What a strategy requires of its user:",
            lambda entry: STRATEGY_ROWS[entry["row"]].title,
            asks_cells,
        ),
    ],
    "throughput": [
        ShortTable(
            "Steps per second, and CPU ms per step, at the longest execution:",
            _throughput_row,
            lambda entry: {shape_at(entry).title: _rate_and_cpu(entry)},
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
            lambda entry: {TRANSPORTS[entry["transport"]].title: median(entry, "ms_per_exchange")},
        ),
        ShortTable(
            "What a server does with a message, over a unix socket:", _work_row, _exchange_cells
        ),
    ],
}
