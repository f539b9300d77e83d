"""What a benchmark writes of results, and what a chief answers about an epoch."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console

from benchmarks.benchmark import Benchmark
from benchmarks.results import Results


@dataclass(frozen=True)
class Outputs:
    """What stands on the terminal, and the content of NAME.json."""

    text: str
    content: dict[str, Any]


def outputs(benchmark: Benchmark, results: Results, folder: Path) -> Outputs:
    """Write all of it, and check what holds for all benchmarks.

    The tables fit an ordinary terminal, and the picture is one.
    """
    output = io.StringIO()
    Console(file=output, width=80).print(benchmark.present(results))
    text = output.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    picture_path = folder / "benchmark.png"
    benchmark.draw(results, picture_path)
    with Image.open(picture_path) as picture:
        assert picture.width > 800
        assert len(picture.convert("RGB").getcolors(maxcolors=2**24) or []) > 10
    path = benchmark.write(results, folder)
    assert path.name == f"{benchmark.name}.json"
    content: dict[str, Any] = json.loads(path.read_text())
    return Outputs(text, content)


def sample(
    steps_per_s: float,
    *,
    steps: int = 100,
    cpu_ms: float = 3.0,
    other_cores: float = 0.0,
    **group_cpu_ms: float,
) -> dict[str, Any]:
    """What a chief answers about an epoch; CPU is that of a step."""
    seconds = steps / steps_per_s
    return {
        "steps": steps,
        "seconds": seconds,
        "cpu_seconds": steps * cpu_ms / 1e3,
        "other_cpu_seconds": other_cores * seconds,
        "group_cpu_seconds": {name: steps * ms / 1e3 for name, ms in group_cpu_ms.items()},
    }


def answer(*samples: dict[str, Any]) -> dict[str, Any]:
    """What a chief answers of a turn."""
    return {
        "samples": list(samples),
        "details": {"fallback_steps": 0, "carriers": ["direct"]},
    }


def turn_of_row(steps_per_s: dict[str, float], *, other_cores: float = 0.0) -> dict[str, Any]:
    """What a chief of the throughput benchmark answers: one epoch for each length."""
    measured = {
        length: {
            "samples": [sample(rate, cpu_ms=2.0, other_cores=other_cores)],
            "first_step_s": 1.5,
            "memory_mib": {"chief": 700.0, "worker": 500.0, "ps": 400.0},
        }
        for length, rate in steps_per_s.items()
    }
    return {"lengths": measured, "details": {}}
