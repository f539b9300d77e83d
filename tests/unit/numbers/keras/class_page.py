"""Writes docs/reference/keras-classes.md: `python -m tests.unit.numbers.keras.class_page`."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import keras
import tensorflow as tf

import tfps
from tests.unit.graphs import graphs_as_traced
from tests.unit.numbers.keras.class_programs import MODULES, Programs, groups, not_applicable
from tfps.testing import InProcessCluster

PAGE = Path(__file__).parents[4] / "docs/reference/keras-classes.md"
BEGIN, END = "<!-- rows -->\n", "<!-- end of rows -->\n"
VERSIONS = re.compile(r"TensorFlow ([\d.]+) and Keras ([\d.]+)")


def read_rows() -> dict[str, dict[str, str]]:
    """Return the results on the page of each module, by the call or the name of a class."""
    rows = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    sections = re.split(r"^## keras\.(\w+)$", rows, flags=re.MULTILINE)[1:]
    return {
        module: dict(re.findall(r"^\| `(.*)` \| (.*) \|$", text, re.MULTILINE))
        for module, text in zip(sections[::2], sections[1::2], strict=True)
    }


def table(results: dict[str, str]) -> str:
    """Return the rows of a module."""
    rows = (f"| `{text}` | {results[text]} |\n" for text in sorted(results, key=str.lower))
    return "| call | result |\n|---|---|\n" + "".join(rows)


def write_page(results: dict[str, dict[str, str]]) -> None:
    """Put the results and the versions of this process into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    found = f"TensorFlow {tf.__version__} and Keras {keras.__version__}"
    sections = (f"\n## keras.{module}\n\n{table(results[module])}" for module in MODULES)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{VERSIONS.sub(found, before)}{BEGIN}{''.join(sections)}\n{END}{after}")


def main() -> None:
    """Run all programs, and write the page unless one of them differs."""
    results = {
        module: {
            name: f"not applicable: {reason}" for name, reason in not_applicable(module).items()
        }
        for module in MODULES
    }
    with (
        graphs_as_traced(),
        InProcessCluster(workers=2, ps=1) as several,
        InProcessCluster(workers=1, ps=2) as one,
        tempfile.TemporaryDirectory() as folder,
    ):
        programs = Programs(
            tfps.ParameterServerStrategy(one.cluster_resolver),
            tfps.ParameterServerStrategy(several.cluster_resolver),
            Path(folder),
        )
        for calls in groups():
            for call, result in programs.results(calls).items():
                results[call.module][call.text] = result
                print(f"keras.{call.module}.{call.text}: {result}", flush=True)
    write_page(results)


if __name__ == "__main__":
    main()
