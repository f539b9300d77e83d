"""Each task's lines under its name."""

from __future__ import annotations

import io
import os
from pathlib import Path

from tfps.launch.output import LogFollower, prefix_stream


def test_follows_logs_without_noise(tmp_path: Path) -> None:
    first, second, target = tmp_path / "a", tmp_path / "b", tmp_path / "out"
    first.write_text("before it was followed\n")
    with target.open("wb") as out:
        follower = LogFollower({"worker 0": first, "ps 0": second}, target=out.fileno())
        with first.open("a") as log:
            log.write("one\nI0000 00:00:1795241506.304509    5726 a.cc:1] noise\ntfps: serves\ntw")
            log.flush()
            log.write("o\nno end")
        second.write_text("later\n")
        follower.close()
    lines = target.read_text().splitlines()
    assert [line for line in lines if "worker" in line] == [
        "[worker 0] one",
        "[worker 0] two",
        "[worker 0] no end",
    ]
    assert [line for line in lines if "ps" in line] == ["[ps 0] later"]


def test_the_last_state_of_a_rewritten_line(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with target.open("wb") as out:
        source = io.BytesIO(b"start\n10%\r50%\r100%\r\nend")
        prefix_stream("chief", source, target=out.fileno()).join(10)
    assert target.read_text() == "[chief] start\n[chief] 100%\n[chief] end\n"


def test_a_reader_that_went_away_is_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    prefix_stream("chief", io.BytesIO(b"line\n"), target=write_end).join(10)
    os.close(write_end)
