"""`result.json`: the numbers of one run, for people, tests, comparisons and pictures."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfps.job.epochs import Epoch

# Those that compute the numbers.
PACKAGES = ("tensorflow", "keras", "tensorflow-datasets", "numpy")
DIGITS = 6  # more than any run repeats
# A list of numbers that `json` has written one below the other.
NUMBERS = re.compile(r"\[\s+(-?\d[^\[\]{}\"]*?)\s+\]")


@dataclass(frozen=True)
class Result:
    """What a run reached, and all that its pictures show. What was not measured is None, never 0.

    Args:
        title: what was trained, for people.
        example: that the job is of; its workload draws its pictures.
        started_at: when training was asked for, ISO 8601 with the zone.
        mode: of the consistency, as the job file has it.
        mode_in_words: the same with its settings.
        cluster: ``workers``, ``ps``, ``tasks`` (name to address) and ``carriers`` (to each server).
        host: of the chief.
        test: what the workload measured on its test examples, by name; the file has these names
            beside the others. Of images: ``test_accuracy``, ``test_loss``, ``classes`` and
            ``confusion_matrix`` (counts, true class by predicted class).
        train_seconds: of the training loop: start, steps, and validation after each epoch.
        examples_seen: training examples whose gradient was applied or dropped.
        steps_per_s: steps of all workers together per second, from each epoch's first step that was
            seen to its last: without start and validation.
        pull_seconds: quantiles of the round trips that only fetch parameters for training, as
            `strategy.stats()` counts them; so are the next five, and the bytes.
        push_seconds: quantiles of the round trips that bring gradients.
        update_seconds: quantiles of the optimizer's time on a server.
        encode_seconds: quantiles of what codecs take on the side that sends.
        decode_seconds: quantiles of what they take on the other one.
        gradient_staleness_updates: staleness -> number of gradients that were applied.
        gradients_dropped: those that were refused.
        traffic: `strategy.stats().traffic` after training: bytes by server and direction.
        incarnations: how many lives each worker has had; 1 of one that was never lost.
        history: what each epoch measured.
        data_source: where the data came from, in words.
        package_versions: of what computed the numbers.
    """

    title: str
    example: str
    started_at: str
    mode: str
    mode_in_words: str
    cluster: Mapping[str, Any]
    host: Mapping[str, Any]
    test: Mapping[str, Any]
    train_seconds: float
    examples_seen: int
    steps_per_s: float | None
    pull_seconds: Any
    push_seconds: Any
    update_seconds: Any
    encode_seconds: Any
    decode_seconds: Any
    gradient_staleness_updates: Any
    gradients_dropped: int | None
    traffic: Sequence[Any]
    incarnations: Sequence[int]
    history: Sequence[Epoch]
    data_source: str
    package_versions: dict[str, str | None]

    def as_json(self) -> str:
        """As it is written."""
        values: dict[str, Any] = {}
        for name, value in asdict(self).items():
            values |= value if name == "test" else {name: value}
        text = json.dumps(_rounded(values), indent=2)
        return NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"

    def write(self, path: Path) -> None:
        """Write it as JSON; a reader never sees half a file."""
        part = path.with_name(f"{path.name}.part")
        part.write_text(self.as_json())
        part.replace(path)


def host() -> dict[str, Any]:
    """Return the name and kind of this machine."""
    return {
        "name": platform.node(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }


def now() -> str:
    """Return this moment as ISO 8601, with the zone."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return round(value, DIGITS) if isinstance(value, float) else value
