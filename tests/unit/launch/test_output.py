"""Each task's lines under its name."""

from __future__ import annotations

import io
import os
import pty
import tempfile
from pathlib import Path

import pytest

from tfps import terminal
from tfps.launch.output import LINE_FILE, LogFollower, prefix_stream, share_terminal, write_prefixed


def test_follows_logs_without_noise(tmp_path: Path) -> None:
    first, second, target = tmp_path / "a", tmp_path / "b", tmp_path / "out"
    first.write_text("before it was followed\n")
    with target.open("wb") as out:
        follower = LogFollower({"worker 0": first, "ps 0": second}, target=out.fileno())
        with first.open("a") as log:
            log.write("one\nI0000 00:00:1795241506.304509    5726 a.cc:1] noise\ntfps: serves\n")
            log.write("tfps: warning: refused a connection\ntw")
            log.flush()
            log.write("o\nno end")
        second.write_text("later\n")
        follower.close()
    lines = target.read_text().splitlines()
    assert [line for line in lines if "worker" in line] == [
        "[worker 0] one",
        "[worker 0] tfps: warning: refused a connection",
        "[worker 0] two",
        "[worker 0] no end",
    ]
    assert [line for line in lines if "[ps" in line] == ["[ps 0] later"]


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


def test_two_processes_keep_out_of_each_others_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, target = pty.openpty()
    with tempfile.TemporaryFile() as shared:
        monkeypatch.setenv(LINE_FILE, str(os.dup(shared.fileno())))
        try:
            script = os.fork()
            if script == 0:
                share_terminal()
                terminal.open_line(True)  # its progress bar
                os._exit(LINE_FILE in os.environ)
            assert os.waitpid(script, 0)[1] == 0
            terminal.share_line(shared.fileno())
            write_prefixed("worker 0", [b"first", b"second"], target=target)
        finally:
            terminal.share_line(None)
            terminal.open_line(False)
    shown = b""
    while b"second" not in shown:
        shown += os.read(controller, 1000)
    assert shown.rstrip() == b"\r\n[worker 0] first\r\n[worker 0] second"
    os.close(controller)
    os.close(target)
