"""`benchmarks embedding` from the command line to its files; numbers are not looked at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.embedding_rows import LENGTHS, STOCK
from benchmarks.socket_bytes import tcp_bytes_of
from tests.integration.benchmarks.command import is_spread, run_benchmark


@pytest.mark.slow
def test_quick_trains_in_every_way_and_counts_bytes(tmp_path: Path) -> None:
    pytest.importorskip("tf_keras", reason="TensorFlow's own strategy needs tf_keras: tfps[bench]")
    only = ("--tables", "3", "--workers", "1", "--ids", "power_law")
    content, _ = run_benchmark("embedding", *only, output=tmp_path, timeout_s=400)
    measured = [(case["row"], case["steps_per_execution"]) for case in content["cases"]]
    assert measured == [(row, length) for row, lengths in LENGTHS.items() for length in lengths]
    for case in content["cases"]:
        assert (case["workers"], case["tables"], case["ids"]) == (1, 3, "power_law")
        assert is_spread(case["steps_per_s"], lowest=1e-6)
        assert is_spread(case["cpu_ms_per_step"], lowest=1e-6)
        if case["row"].startswith("tfps"):
            assert case["details"] == {"fallback_steps": 0, "carriers": ["direct", "direct"]}
        is_counted = case["row"] in (*STOCK, "tfps_loop_tcp")
        if is_counted and tcp_bytes_of(os.getpid()) is not None:
            # No row came to the worker and none went back that the sockets have not seen.
            assert case["bytes_over_rows"] > 1
            assert 1 <= case["imbalance"] < 2
        else:
            assert (case["bytes_per_step"], case["imbalance"]) == (None, None)
    assert all(bar["value"] is None for bar in content["bars"])
