from __future__ import annotations

import subprocess
import sys

import pytest

from tfps.bench.memory import peak_of

PROGRAM = """
import os
from tfps.bench.memory import peak_mib
before = peak_mib(os.getpid())
block = bytes(range(256)) * (64 * 2**12)
del block
print(before, peak_mib(os.getpid()))
"""


def test_the_peak_stays_when_memory_is_given_back() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    before, after = map(float, ran.stdout.split())
    assert 60 < after - before < 70


def test_a_system_without_the_count_is_named() -> None:
    with pytest.raises(ValueError, match="a line with VmHWM, received 'Name: python'"):
        peak_of("Name: python")
