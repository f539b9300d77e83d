"""The lines of a record, and which of them stay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfps.observe.record import FINE_S, format_line, parse_line, thin_lines

HOUR_S = 3600.0
NOW_S = 5 * HOUR_S


def _lines(times_s: list[float], began_s: float = 0.0) -> list[str]:
    return [format_line({"stats": {}}, now_s=time_s, began_s=began_s) for time_s in times_s]


@given(st.lists(st.floats(0.0, NOW_S), max_size=60).map(sorted))
def test_the_last_hour_stays_and_one_line_of_ten_seconds_before_it(times_s: list[float]) -> None:
    lines = _lines(times_s)
    kept = thin_lines(lines, now_s=NOW_S)
    seen = [fields["time_s"] for line in lines if (fields := parse_line(line))]
    left = [fields["time_s"] for line in kept if (fields := parse_line(line))]
    old = [time_s for time_s in left if time_s <= NOW_S - FINE_S]
    assert [each for each in left if each not in old] == [s for s in seen if s > NOW_S - FINE_S]
    assert len({time_s // 10 for time_s in old}) == len(old)
    assert {time_s // 10 for time_s in seen} == {time_s // 10 for time_s in left}
    assert thin_lines(kept, now_s=NOW_S) == kept


def test_each_strategy_keeps_lines_of_its_own() -> None:
    lines = [*_lines([1.0, 2.0], began_s=0.0), *_lines([2.5, 3.0], began_s=2.1)]
    assert thin_lines(lines, now_s=NOW_S) == [lines[0], lines[2]]


def test_a_line_that_a_crash_has_cut_is_no_line() -> None:
    (line,) = _lines([NOW_S])
    assert parse_line(line[:-20]) is None
    assert thin_lines([line[:-20], line, "{}\n", "[]\n"], now_s=NOW_S) == [line]
