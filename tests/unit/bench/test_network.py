"""Which aims `tfps bench network` compares, and what an epoch exceeds another by."""

from __future__ import annotations

from typing import Any

from tests.unit.bench.outputs import answer, outputs, sample
from tfps.bench.network import NetworkBenchmark, difference
from tfps.bench.network_rows import SLOW_MBIT
from tfps.bench.results import Results
from tfps.bench.usage import Sample


def _results(*, has_links: bool = True, **accounting: float) -> Results:
    results = Results()
    for way, rate in (("everything", 2.0), ("changes", 9.0)):
        run: dict[str, Any] = {**answer(sample(rate)), "up_bytes_per_step": 6e6}
        run["has_links"] = has_links
        if way in accounting:
            run["accounting"] = accounting[way]
        results.add(run, rate=SLOW_MBIT, model="fine_tuned", way=way)
    return results


def test_fine_tuning_is_compared_with_sending_everything(tmp_path: Any) -> None:
    written = outputs(NetworkBenchmark(), _results(changes=1.01, everything=0.97), tmp_path)
    tuning, accounting = written.content["bars"]
    assert (tuning["value"], tuning["holds"]) == (4.5, True)
    assert (accounting["value"], accounting["holds"]) == (0.03, False)
    assert "100 Mbit/s: 16 million parameters, 90 % frozen" in written.text
    assert "6.00" in written.text


def test_it_says_when_there_are_no_links(tmp_path: Any) -> None:
    with_links, without = (
        outputs(NetworkBenchmark(), _results(has_links=has_links), tmp_path)
        for has_links in (True, False)
    )
    assert with_links.content["links"] == "namespaces"
    assert without.content["links"] == "token buckets"
    assert "held back what it sent" in " ".join(without.text.split())
    assert "held back" not in with_links.text


def test_what_was_not_measured_has_no_value() -> None:
    bars = NetworkBenchmark().bars(Results())
    assert [bar.value for bar in bars] == [None, None]


def test_the_longer_epoch_leaves_joining_out() -> None:
    short, long = Sample(10, 3.0, 2.0, 1.0), Sample(20, 5.0, 3.0, 1.5)
    assert difference(short, long) == Sample(10, 2.0, 1.0, 0.5)
    # Noise of a busy machine: no rate is better than one of seconds below zero.
    assert difference(short, Sample(20, 2.8, 3.0, 1.5)) == Sample(10, 1.4, 1.5, 0.75)
