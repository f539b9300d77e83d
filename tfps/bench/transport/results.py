"""The cases of a run of `tfps bench transport`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tfps.bench.case import Case, most_other_cores
from tfps.bench.report import Report, Spread
from tfps.bench.workload import MODELS

MLP_BYTES = MODELS["mlp"].size_bytes


@dataclass(frozen=True)
class CarrierKind:
    """A way of a message.

    Args:
        title: in tables and plots.
        encrypts: the tasks have certificates.
    """

    title: str
    encrypts: bool = False


CARRIERS = {
    "unix": CarrierKind("direct, unix"),
    "tcp": CarrierKind("direct, TCP"),
    "tls": CarrierKind("direct, TLS", encrypts=True),
    "grpc": CarrierKind("grpc"),
}
# What a server does with a message.
ROWS = {"echo": "echo", "ledger": "+ ledger", "adam": "+ Adam update"}


@dataclass
class TransportCase(Case):
    """The samples of one carrier at one size, with what the server did."""

    row: str
    carrier: str
    size_bytes: int

    @property
    def ms(self) -> Spread:
        """Of one exchange."""
        return Spread.of([1e3 / sample.steps_per_s for sample in self.samples])

    def group_cpu_ms(self, group: str) -> Spread:
        """Of one exchange, the processes of one role: ``"worker"`` or ``"ps"``."""
        return Spread.of([sample.group_cpu_ms_per_step(group) for sample in self.samples])


class TransportResults:
    """The cases of a run, found by what they are."""

    def __init__(self) -> None:
        self._cases: dict[tuple[str, str, int], TransportCase] = {}

    def add(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Take the result of one turn."""
        for entry in entries:
            key = (entry["row"], entry["carrier"], entry["size_bytes"])
            case = self._cases.setdefault(key, TransportCase(*key))
            case.add([entry["sample"]], {})

    @property
    def echoes(self) -> list[TransportCase]:
        """Bare exchanges of the sizes that were asked for: by size, then in CARRIERS' order."""
        cases = [case for case in self._cases.values() if case.row == "echo"]
        order = list(CARRIERS)
        return sorted(cases, key=lambda case: (case.size_bytes, order.index(case.carrier)))

    @property
    def steps(self) -> list[TransportCase]:
        """What a push of the MLP's size costs, from the bare exchange to the whole of it."""
        found = (self._cases.get((row, "unix", MLP_BYTES)) for row in ROWS)
        return [case for case in found if case is not None]

    @property
    def other_cores(self) -> float:
        """Cores that something else kept busy, in the worst case."""
        return most_other_cores(self._cases.values())

    def report(self, settings: Mapping[str, Any]) -> Report:
        """Put the results into the form that all benchmarks share; nothing here has an aim."""
        cases = [
            {
                "row": case.row,
                "carrier": case.carrier,
                "size_bytes": case.size_bytes,
                "ms_per_exchange": case.ms.as_json(),
                "cpu_ms_per_exchange": case.cpu_ms_per_step.as_json(),
                "worker_cpu_ms_per_exchange": case.group_cpu_ms("worker").as_json(),
                "ps_cpu_ms_per_exchange": case.group_cpu_ms("ps").as_json(),
                "other_cores": round(case.other_cores, 2),
                "samples": [asdict(sample) for sample in case.samples],
            }
            for case in [*self.echoes, *(case for case in self.steps if case.row != "echo")]
        ]
        return Report("transport", settings, cases, [])


def size_text(size_bytes: int) -> str:
    """A size with its unit, powers of ten.

    Example:

    >>> size_text(407_080), size_text(64_000_000)
    ('407 KB', '64 MB')
    """
    if size_bytes >= 1_000_000:
        return f"{size_bytes / 1e6:.0f} MB"
    return f"{size_bytes / 1e3:.0f} KB"
