from __future__ import annotations

import subprocess
import sys
import time

from tfps.bench.process_tree import ProcessTree

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
