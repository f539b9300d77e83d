"""`benchmarks transport` from the command line to its files; numbers are not looked at."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.integration.benchmarks.command import is_spread, run_benchmark

MLP_BYTES, LARGE_BYTES = 407_080, 99_606_568


@pytest.mark.slow
def test_quick_writes_every_carrier_and_what_the_books_cost(tmp_path: Path) -> None:
    content, printed = run_benchmark("transport", output=tmp_path, timeout_s=270)
    carriers = ["unix", "tcp", *(["tls"] if shutil.which("openssl") else []), "grpc"]
    measured = [(case["row"], case["carrier"], case["size_bytes"]) for case in content["cases"]]
    assert measured == [
        *(("echo", carrier, size) for size in (4_000, MLP_BYTES) for carrier in carriers),
        ("echo", "unix", LARGE_BYTES),
        ("ledger", "unix", MLP_BYTES),
        ("adam", "unix", MLP_BYTES),
        *((row, "unix", LARGE_BYTES) for row in ("pass", "adam")),
    ]
    for case in content["cases"]:
        assert is_spread(case["ms_per_exchange"], lowest=1e-6)
        for role in ("", "worker_", "ps_"):
            assert is_spread(case[f"{role}cpu_ms_per_exchange"])
    assert "+ Adam update" in printed
