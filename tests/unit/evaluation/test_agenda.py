"""The choice of the next checkpoint: rules by example, and what holds after any history."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfps.evaluation.agenda import MAX_ATTEMPTS, Agenda
from tfps.evaluation.checkpoint import CheckpointFile, Format


def _checkpoint(
    number: int, *, changed_ns: int | None = None, size_bytes: int = 1
) -> CheckpointFile:
    return CheckpointFile(
        name=f"ckpt-{number}",
        format=Format.TENSORFLOW,
        changed_ns=number if changed_ns is None else changed_ns,
        size_bytes=size_bytes,
    )


def _newest_first(*checkpoints: CheckpointFile) -> list[CheckpointFile]:
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.recency, reverse=True)


ONE, TWO, THREE = (_checkpoint(number) for number in (1, 2, 3))


def test_the_newest_comes_next_and_none_twice() -> None:
    agenda = Agenda()
    assert agenda.next([], now_s=0) is None
    assert agenda.next([TWO, ONE], now_s=0) == TWO
    agenda.mark_evaluated(TWO)
    assert agenda.next([TWO, ONE], now_s=1) is None
    assert agenda.next([THREE, TWO], now_s=2) == THREE


def test_one_that_was_written_again_is_another() -> None:
    agenda = Agenda()
    agenda.mark_evaluated(_checkpoint(5, changed_ns=10))
    again = _checkpoint(5, changed_ns=11)
    assert agenda.next([again], now_s=0) == again


def test_one_that_cannot_be_read_lets_others_pass_and_is_tried_again() -> None:
    agenda = Agenda()
    assert not agenda.mark_failed(THREE, now_s=0.0)
    found = [THREE, TWO, ONE]
    assert agenda.next(found, now_s=0.5) == TWO
    agenda.mark_evaluated(TWO)
    assert agenda.next(found, now_s=0.9) is None
    assert agenda.next(found, now_s=1.0) == THREE
    assert not agenda.mark_failed(THREE, now_s=1.0)
    assert agenda.next(found, now_s=2.9) is None
    assert agenda.next(found, now_s=3.0) == THREE


def test_one_that_stays_unreadable_is_given_up_until_it_changes() -> None:
    agenda = Agenda()
    now_s = 0.0
    for attempt in range(1, MAX_ATTEMPTS + 1):
        while agenda.next([TWO], now_s=now_s) is None:
            now_s += 1
        assert agenda.mark_failed(TWO, now_s=now_s) == (attempt == MAX_ATTEMPTS)
    assert now_s >= 60
    assert agenda.next([TWO], now_s=now_s + 1e6) is None
    grown = _checkpoint(2, changed_ns=3, size_bytes=9)
    assert agenda.next([grown], now_s=now_s) == grown


def test_nobody_waits_for_what_nobody_writes() -> None:
    agenda = Agenda()
    assert not agenda.mark_failed(TWO, now_s=0)
    agenda.finish()
    assert agenda.next([TWO, ONE], now_s=0) == TWO
    assert agenda.mark_failed(TWO, now_s=0)
    assert agenda.next([TWO, ONE], now_s=0) == ONE


def test_enough_by_count_or_by_name() -> None:
    by_count, by_name, endless = Agenda(max_evaluations=2), Agenda(max_evaluations=2), Agenda()
    assert not by_count.is_complete
    for number in (0, 1):
        by_count.mark_evaluated(_checkpoint(number))
        assert by_count.is_complete == (number == 1)
    by_name.mark_evaluated(THREE)
    assert by_name.is_complete, "the evaluator was slow, and epoch 2 was the last one to be seen"
    endless.mark_evaluated(THREE)
    assert not endless.is_complete


SAVE, DAMAGE, DELETE, LOOK = "save", "damage", "delete", "look"
EVENTS = st.lists(
    st.tuples(st.sampled_from([SAVE, SAVE, DAMAGE, DELETE, LOOK, LOOK]), st.integers(0, 5)),
    max_size=40,
)


@given(EVENTS)
def test_any_history(events: list[tuple[str, int]]) -> None:
    """A folder is written, damaged and emptied while an evaluator looks at it."""
    agenda = Agenda()
    folder: dict[int, tuple[CheckpointFile, bool]] = {}
    evaluated: list[CheckpointFile] = []

    def look(now_s: float) -> bool:
        found = _newest_first(*(checkpoint for checkpoint, _ in folder.values()))
        checkpoint = agenda.next(found, now_s=now_s)
        if checkpoint is None:
            return False
        assert checkpoint in found
        if folder[int(checkpoint.name.removeprefix("ckpt-"))][1]:
            agenda.mark_evaluated(checkpoint)
            evaluated.append(checkpoint)
        else:
            agenda.mark_failed(checkpoint, now_s=now_s)
        return True

    for now, (event, number) in enumerate(events):
        if event in (SAVE, DAMAGE):
            folder[number] = _checkpoint(number, changed_ns=now), event == SAVE
        elif event == DELETE:
            folder.pop(number, None)
        else:
            look(float(now))
    agenda.finish()
    looks = 0
    while look(1e6):
        looks += 1
        assert looks <= len(folder), "the end is reached"
    ages = [checkpoint.recency for checkpoint in evaluated]
    assert ages == sorted(set(ages)), "never back in time, never twice"
    readable = [checkpoint for checkpoint, whole in folder.values() if whole]
    if readable:
        newest = _newest_first(*readable)[0]
        assert evaluated[-1].recency >= newest.recency, (
            "the last state of the training is evaluated"
        )
    assert agenda.evaluations == len(evaluated)
