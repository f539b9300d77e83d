"""The cases of a run of `tfps bench checkpoint`, and what has an aim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tfps.bench.checkpoint.measured import CheckpointSample
from tfps.bench.checkpoint.ways import BESIDE, RESTORE, SAVE, TENSORFLOW, TFPS
from tfps.bench.report import Bar, Report, Spread

PAUSE_AIM_S = 0.2
# Whatever the model's size: what the chief traces and reads of the manifest.
CHIEF_AIM_MIB = 64.0


@dataclass
class CheckpointCase:
    """The samples of one way of doing one thing.

    Args:
        way: a key of `TITLES`.
        what: `SAVE` or `RESTORE`.
        ps: servers.
        samples: one per turn.
    """

    way: str
    what: str
    ps: int
    samples: list[CheckpointSample] = field(default_factory=list)

    def spread(self, name: str) -> Spread:
        """Of one of the measured numbers."""
        return Spread.of([getattr(sample, name) for sample in self.samples])


class CheckpointResults:
    """What was measured.

    Args:
        mib: of the model's weights.
        ps: servers that saved.
    """

    def __init__(self, mib: int, ps: int) -> None:
        self.mib, self.ps = mib, ps
        self._cases: dict[tuple[str, str, int], CheckpointCase] = {}

    def add(self, ps: int, samples: Iterable[Mapping[str, Any]]) -> None:
        """Take what a turn on so many servers measured."""
        for fields in samples:
            sample = CheckpointSample(**fields)
            case = CheckpointCase(sample.way, sample.what, ps)
            key = (sample.what, sample.way, ps)
            self._cases.setdefault(key, case).samples.append(sample)

    @property
    def cases(self) -> list[CheckpointCase]:
        """Saves, then restores."""
        order = {SAVE: 0, RESTORE: 1}
        return sorted(self._cases.values(), key=lambda case: order[case.what])

    def median(self, what: str, way: str, name: str) -> float | None:
        """Of a number, on the servers that saved; None where it was not measured."""
        case = self._cases.get((what, way, self.ps))
        return None if case is None else case.spread(name).median

    def bars(self) -> list[Bar]:
        """Every comparison that has an aim."""
        bars = [
            Bar(
                "seconds that training rests for a save",
                self.median(SAVE, TFPS, "pause_s"),
                PAUSE_AIM_S,
                is_cost=True,
            ),
            Bar(
                "the same beside training",
                self.median(SAVE, BESIDE, "pause_s"),
                PAUSE_AIM_S,
                is_cost=True,
            ),
            Bar(
                "memory that the chief needs for a save, MiB",
                self.median(SAVE, TFPS, "chief_mib"),
                CHIEF_AIM_MIB,
                is_cost=True,
            ),
        ]
        for what in (SAVE, RESTORE):
            ours, theirs = (self.median(what, way, "seconds") for way in (TFPS, TENSORFLOW))
            ratio = ours / theirs if ours is not None and theirs else None
            bars.append(Bar(f"{what}: seconds over TensorFlow's", ratio, 1.0, is_cost=True))
        return bars

    def report(self, settings: Mapping[str, Any]) -> Report:
        """Put the results into the form that all benchmarks share."""
        numbers = ("seconds", "pause_s", "chief_mib", "server_mib")
        cases = [
            {
                "way": case.way,
                "what": case.what,
                "ps": case.ps,
                **{name: case.spread(name).as_json() for name in numbers},
                "samples": [asdict(sample) for sample in case.samples],
            }
            for case in self.cases
        ]
        return Report("checkpoint", settings, cases, self.bars())
