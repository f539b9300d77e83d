"""The newest checkpoint that is not damaged is restored, and the others are named."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.messages import raises
from tfps.checkpoint.fallback import restore_newest_undamaged
from tfps.errors import CheckpointDamaged, CheckpointError

NUMBERS = st.sets(st.integers(1, 10**6), min_size=1, max_size=8).map(sorted)


@given(numbers=NUMBERS, data=st.data())
def test_the_newest_sound_one(numbers: list[int], data: st.DataObject) -> None:
    damaged = data.draw(st.sets(st.sampled_from(numbers)))
    tried: list[int] = []

    def restore(number: int) -> str:
        tried.append(number)
        if number in damaged:
            raise CheckpointDamaged(f"reason {number}")
        return f"restored {number}"

    sound = [number for number in numbers if number not in damaged]
    if sound:
        restored, lines = restore_newest_undamaged(numbers, restore, source="saved")
        assert restored == f"restored {sound[-1]}"
        newer = [number for number in reversed(numbers) if number > sound[-1]]
        assert lines == {
            number: f"reason {number}; checkpoint {sound[-1]} is used instead" for number in newer
        }
        assert tried == [*newer, sound[-1]]  # and nothing that is older
    else:
        with raises(CheckpointDamaged, "saved", remedy="another folder") as raised:
            restore_newest_undamaged(numbers, restore, source="saved")
        said = [line.strip() for line in str(raised.value).splitlines()[1:]]
        assert said == [f"- reason {number}" for number in reversed(numbers)]


def test_one_that_does_not_fit_is_no_reason_to_take_another() -> None:
    def restore(number: int) -> None:
        raise CheckpointError(f"{number} does not fit")

    with raises(CheckpointError, "2 does not fit"):
        restore_newest_undamaged([1, 2], restore, source="saved")
