"""`result.json`: the numbers of one run, for users, tests, comparisons and pictures."""

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

# The packages that compute the numbers.
RECORDED_PACKAGES = ("tensorflow", "keras", "tensorflow-datasets", "numpy")
DIGITS = 6  # more than two runs have in common
# A list of numbers that `json` has written on several lines.
NUMBERS = re.compile(r"\[\s+(-?\d[^\[\]{}\"]*?)\s+\]")


@dataclass(frozen=True)
class Result:
    """The results of a run, and all that its pictures show. Values not measured are None, never 0.

    Args:
        title: a title that says what was trained.
        example: the job's example; its workload draws the pictures.
        started_at: the time at which training began, ISO 8601 with the zone.
        mode: the consistency mode, as in the job file.
        mode_in_words: the mode with its settings.
        cluster: ``workers``, ``ps``, ``tasks`` (name to address) and ``transports`` (to each
            server).
        host: the chief's machine.
        test: the workload's measurements on the test examples, by name; the file has these names
            beside the others. For images: ``test_accuracy``, ``test_loss``, ``classes`` and
            ``confusion_matrix`` (counts, true class by predicted class).
        train_seconds: the duration of training: start, steps, and validation after each epoch.
        examples_seen: the number of training examples whose gradient was applied or dropped.
        steps_per_s: the steps of all workers together per second, from each epoch's first observed
            step to its last: without start and validation.
        pull_seconds: quantiles of the exchanges that only fetch parameters for training, as in
            `strategy.stats()`; so are the next four, the staleness and the bytes.
        push_seconds: quantiles of the exchanges that send gradients.
        update_seconds: quantiles of the optimizer's time on a server.
        encode_seconds: quantiles of the time to encode on the side that sends.
        decode_seconds: quantiles of the time to decode on the other side.
        gradient_staleness_updates: staleness -> number of gradients that were applied.
        gradients_dropped: the number of gradients that were refused.
        traffic: `strategy.stats().traffic` after training: bytes by server and direction.
        worker_lives: the number of lives of each worker; 1 for one that was never lost.
        history: the measurements of each epoch.
        data_source: the origin of the data.
        package_versions: the versions of the packages that compute the numbers.
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
    worker_lives: Sequence[int]
    history: Sequence[Epoch]
    data_source: str
    package_versions: dict[str, str | None]

    def as_json(self) -> str:
        """Return the result as the JSON text of its file."""
        values: dict[str, Any] = {}
        for name, value in asdict(self).items():
            values |= value if name == "test" else {name: value}
        text = json.dumps(_round(values), indent=2)
        return NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"

    def write(self, path: Path) -> None:
        """Write the file atomically, so that a reader never sees half of it."""
        part = path.with_name(f"{path.name}.part")
        part.write_text(self.as_json())
        part.replace(path)


def describe_host() -> dict[str, Any]:
    """Return the name and kind of this machine."""
    return {
        "name": platform.node(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }


def format_now() -> str:
    """Return the current time as ISO 8601, with the zone."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def _round(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _round(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_round(item) for item in value]
    return round(value, DIGITS) if isinstance(value, float) else value
