"""One benchmark as a user starts it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from PIL import Image

from tests.integration.library_lines import RAW

CARRIER = re.compile(r"\bgrpc\b(?!:)")


def run_benchmark(
    name: str, *options: str, output: Path, timeout_s: float
) -> tuple[dict[str, Any], str]:
    """Run it, check what all benchmarks promise, and return its JSON and what it printed."""
    command = [sys.executable, "-P", "-m", "benchmarks", name, "--quick", *options]
    ran = subprocess.run(
        [*command, "--output", str(output)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    # One of the carriers has the name of TensorFlow's RPC.
    assert not [line for line in ran.stdout.splitlines() if RAW.search(CARRIER.sub("", line))]
    content: dict[str, Any] = json.loads((output / f"{name}.json").read_text())
    assert content["benchmark"] == name
    assert content["machine"]["cores"] >= 1
    assert {"python", "tensorflow", "keras", "tf_keras"} <= set(content["package_versions"])
    for bar in content["bars"]:
        assert set(bar) == {"name", "value", "aim", "is_cost", "holds"}
    with Image.open(output / f"{name}.png") as picture:
        assert picture.format == "PNG"
    return content, ran.stdout


def is_spread(spread: dict[str, float], *, lowest: float = 0.0) -> bool:
    """Whether these are the ends and the middle of something measured."""
    return lowest <= spread["min"] <= spread["median"] <= spread["max"]
