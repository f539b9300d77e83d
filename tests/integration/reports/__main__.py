"""Run the programs that users reported, in one process and under tfps, and compare them.

Usage: python -m tests.integration.reports [NAME ...]

Each report is a module of this folder and runs in a process of its own. The status is 1 if any
result differs, or if a report compares nothing.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

from tests.integration.reports.report import Report

NAMES = sorted(
    path.stem
    for path in Path(__file__).parent.glob("*.py")
    if path.stem not in ("__init__", "__main__", "report") and not path.stem.startswith("test_")
)


def run_here(name: str) -> int:
    """Run one report in this process, and return its exit status."""
    report = Report()
    importlib.import_module(f"tests.integration.reports.{name}").compare(report)
    print(f"{name}: {report.right} equal, {report.wrong} wrong", flush=True)
    return int(report.wrong > 0 or report.right == 0)


def main(arguments: list[str]) -> int:
    """Run the named reports, or all of them, and return the exit status."""
    if unknown := set(arguments) - set(NAMES):
        print(f"unknown reports: {sorted(unknown)}; expected some of {NAMES}", file=sys.stderr)
        return 2
    if len(arguments) == 1:
        return run_here(arguments[0])
    command = [sys.executable, "-m", "tests.integration.reports"]
    failed = [
        name
        for name in arguments or NAMES
        if subprocess.run([*command, name], check=False).returncode
    ]
    print(f"failed: {failed}" if failed else f"all equal: {arguments or NAMES}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
