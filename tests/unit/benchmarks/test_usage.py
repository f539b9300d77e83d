from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from benchmarks.usage import EpochClock, count_switches

PEAK_PROGRAM = """
import os
from benchmarks.usage import peak_mib
before = peak_mib(os.getpid())
block = bytes(range(256)) * (64 * 2**12)
del block
print(before, peak_mib(os.getpid()))
"""


def test_the_clock_counts_the_cpu_of_the_cluster_with_its_children() -> None:
    # The named process idles; its child works. This process sleeps meanwhile.
    work = "import time; end = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
    program = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {work + chr(10) + 'input()'!r}])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    task = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        clock = EpochClock([task.pid], groups={"ps": [task.pid], "worker": []})
        clock.begin()
        assert task.stdout is not None
        child = int(task.stdout.readline())
        deadline = time.monotonic() + 30
        while _cpu_s(child) < 0.3 and time.monotonic() < deadline:
            time.sleep(0.02)
        clock.end(steps=10)
    finally:
        task.communicate(b"\n", timeout=30)
    (sample,) = clock.samples
    assert sample.steps == 10
    assert sample.group_cpu_seconds["worker"] == 0
    assert 0.25 < sample.group_cpu_seconds["ps"] <= sample.cpu_seconds
    expected_ms = 100 * sample.group_cpu_seconds["ps"]
    assert sample.group_cpu_ms_per_step("ps") == pytest.approx(expected_ms)


def _cpu_s(process: int) -> float:
    with open(f"/proc/{process}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_clock_counts_the_context_switches_of_all_threads() -> None:
    ended = threading.Event()

    def wait_often() -> None:
        while not ended.wait(0.001):
            pass

    waiter = threading.Thread(target=wait_often)
    waiter.start()
    clock = EpochClock([], groups={"worker": [os.getpid()]})
    clock.begin()
    before = count_switches(os.getpid())
    deadline = time.monotonic() + 30
    while count_switches(os.getpid()) < before + 20 and time.monotonic() < deadline:
        pass
    clock.end(steps=10)
    ended.set()
    waiter.join()
    (sample,) = clock.samples
    assert list(sample.group_switches) == ["worker"]
    assert sample.group_switches_per_step("worker") >= 2


def test_the_peak_stays_when_memory_is_given_back() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PEAK_PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    before, after = map(float, ran.stdout.split())
    assert 60 < after - before < 70
