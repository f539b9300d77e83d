"""A function that runs at exit finds out how its script has ended."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAD = """
import atexit, os, sys
from tfps.cluster.exit_status import exit_status, watch_exit
watch_exit(); watch_exit()
atexit.register(lambda: print('status', exit_status()))
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("pass", 0),
        ("sys.exit()", 0),
        ("sys.exit(0)", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('wrong')", 1),
        ("def main():\n    sys.exit(4)\nmain()", 4),
        ("raise ValueError", 1),
        ("raise KeyboardInterrupt", 130),
        ("1/0", 1),
        ("def main():\n    try: sys.exit(4)\n    finally: print(end='')\nmain()", 4),
        ("try: 1/0\nexcept ZeroDivisionError: pass", 0),
    ],
)
def test_exit_status(body: str, expected: int) -> None:
    result = subprocess.run(
        [sys.executable, "-c", HEAD + body], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.stdout == f"status {expected}\n"
    if expected != 130:  # Python ends itself with SIGINT then
        assert result.returncode == expected


@pytest.mark.skipif(sys.version_info < (3, 12), reason="exceptions carry their frames since 3.12")
def test_a_caught_exit_is_none() -> None:
    body = "def main():\n    try: sys.exit(5)\n    except SystemExit: pass\nmain()"
    result = subprocess.run(
        [sys.executable, "-c", HEAD + body], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.stdout == "status 0\n"
