from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from benchmarks.process_tree import ProcessTree, between, role_of
from benchmarks.socket_bytes import TcpBytes

# A process whose child takes 200 MiB and works for a while; both then wait to be let go.
CHILD = """
import sys, time
block = bytearray(200 * 2**20)
end = time.process_time() + 0.3
while time.process_time() < end: pass
print("worked", flush=True)
sys.stdin.read()
"""
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


def test_a_child_that_has_ended_is_still_counted() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with ProcessTree(process.pid) as tree:
            process.stdout.readline()
            looked = time.monotonic() + 20
            while sum(tree.cpu_s.values()) < 0.3 and time.monotonic() < looked:
                time.sleep(0.05)
            process.stdin.close()
            process.wait()
    assert len(tree.peaks_mib) == 2
    assert max(tree.peaks_mib.values()) > 200 > tree.peaks_mib[process.pid]
    assert sum(tree.cpu_s.values()) >= 0.3


def test_of_a_process_that_is_gone_nothing_is_known() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with ProcessTree(process.pid) as tree:
        pass
    assert tree.peaks_mib == {}


@pytest.mark.parametrize(
    ("name", "config", "role"),
    [
        ("worker 12", "", "worker"),
        ("ps 0", "", "ps"),
        ("python", '{"task": {"type": "worker", "index": 1}}', "worker"),
        ("python", "", None),
        ("worker", "{}", None),
    ],
)
def test_a_role_is_told_by_the_name_or_the_cluster(name: str, config: str, role: Any) -> None:
    assert role_of(name, {"TF_CONFIG": config}) == role


def test_bytes_are_those_between_two_moments() -> None:
    looks = [(0.0, TcpBytes(0, 0)), (10.0, TcpBytes(100, 1000)), (20.0, TcpBytes(100, 3000))]
    assert between(looks, 5.0, 15.0) == (50, 1500)
    assert between(looks, 0.0, 99.0) == (100, 3000)


def test_bytes_of_a_role_are_those_of_all_its_processes() -> None:
    tree = ProcessTree(1, roles={2: "worker", 3: "worker", 4: "ps"})
    assert tree.bytes_between("worker", 0.0, 1.0) is None  # nobody has counted
    for process, count in ((2, 10), (3, 20), (4, 40)):
        tree.looks[process] = [(0.0, TcpBytes(0, 0)), (1.0, TcpBytes(count, 2 * count))]
    assert tree.bytes_between("worker", 0.0, 1.0) == (30, 60)
    assert tree.bytes_between("chief", 0.0, 1.0) is None
