from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from benchmarks.traffic import TrafficClock
from benchmarks.turn import TaskNumbers
from benchmarks.usage import EpochClock, Sample, peak_of

PEAK_PROGRAM = """
import os
from benchmarks.usage import peak_mib
before = peak_mib(os.getpid())
block = bytes(range(256)) * (64 * 2**12)
del block
print(before, peak_mib(os.getpid()))
"""


def test_a_sample_gives_rates() -> None:
    sample = Sample(steps=200, seconds=4.0, cpu_seconds=1.0, other_cpu_seconds=2.0)
    assert (sample.steps_per_s, sample.cpu_ms_per_step, sample.other_cores) == (50.0, 5.0, 0.5)


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
    assert 0.25 < sample.cpu_seconds < 3
    assert sample.group_cpu_seconds["worker"] == 0
    assert 0.25 < sample.group_cpu_seconds["ps"] <= sample.cpu_seconds
    expected_ms = 100 * sample.group_cpu_seconds["ps"]
    assert sample.group_cpu_ms_per_step("ps") == pytest.approx(expected_ms)


def _cpu_s(process: int) -> float:
    with open(f"/proc/{process}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_peak_stays_when_memory_is_given_back() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PEAK_PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    before, after = map(float, ran.stdout.split())
    assert 60 < after - before < 70


def test_a_system_without_the_count_is_named() -> None:
    with pytest.raises(ValueError, match="a line with VmHWM, received 'Name: python'"):
        peak_of("Name: python")


def test_a_process_without_a_cluster_has_no_servers_whose_bytes_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    clock = TrafficClock(TaskNumbers({}))
    clock.begin()
    clock.end(3)
    assert clock.server_bytes == clock.direct_bytes == [[]]
    assert [sample.steps for sample in clock.samples] == [3]
