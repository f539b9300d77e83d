"""Pauses between attempts grow, have an end, and are over when a save succeeds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfps.checkpoint.attempts import FIRST_PAUSE_S, LONGEST_PAUSE_S, Attempts

TIMES = st.floats(0, 1e9)


@given(now_s=TIMES, failures=st.integers(1, 2000))
def test_pauses_grow_to_the_longest(now_s: float, failures: int) -> None:
    attempts = Attempts()
    assert attempts.may_save(now_s=now_s)
    pauses = []
    for _ in range(failures):
        attempts = attempts.after_failure(now_s=now_s)
        assert not attempts.may_save(now_s=now_s)
        pauses.append(attempts.pause_s)
        now_s = attempts.not_before_s
        assert attempts.may_save(now_s=now_s)
    assert pauses[0] == FIRST_PAUSE_S
    assert pauses == sorted(pauses)
    assert all(pause <= LONGEST_PAUSE_S for pause in pauses)
    if failures > 7:
        assert pauses[-1] == LONGEST_PAUSE_S
