"""`result.json`: the numbers of one run, for people, tests and comparisons."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import tfps

PACKAGES = ("tensorflow", "keras", "tensorflow-datasets", "numpy")
DIGITS = 6  # more than any run repeats


@dataclass(frozen=True)
class Result:
    """What a run reached. What was not measured is None, never 0.

    Args:
        test_accuracy: share of the test images that the trained model names correctly.
        test_loss: mean loss over the test images.
        train_seconds: of the training loop, validation after each epoch included.
        examples_seen: training examples whose gradient was applied or dropped.
        steps_per_s: steps of all workers together per second of `train_seconds`.
        pull_seconds: quantiles of a pull's round trip.
        push_seconds: quantiles of a push's round trip.
        update_seconds: quantiles of the optimizer's time on a server.
        gradient_staleness_updates: staleness -> number of gradients that were applied.
        gradients_dropped: those that were refused.
        data_source: where the data came from, in words.
        package_versions: of what computed the numbers.
    """

    test_accuracy: float
    test_loss: float
    train_seconds: float
    examples_seen: int
    steps_per_s: float
    pull_seconds: Any
    push_seconds: Any
    update_seconds: Any
    gradient_staleness_updates: Any
    gradients_dropped: int | None
    data_source: str
    package_versions: dict[str, str]

    def write(self, path: Path) -> None:
        """Write it as JSON; a reader never sees half a file."""
        part = path.with_name(f"{path.name}.part")
        part.write_text(json.dumps(_rounded(asdict(self)), indent=2) + "\n")
        part.replace(path)


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that compute."""
    versions = {"python": platform.python_version(), "tfps": tfps.__version__}
    return versions | {name: metadata.version(name) for name in PACKAGES}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return round(value, DIGITS) if isinstance(value, float) else value
