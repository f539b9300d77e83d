"""Filter a task's error output: lines of libraries go to a file, others pass.

It runs as a process of its own, started by path, with only Python's standard library, so that it
starts in milliseconds and still has the last lines when the task crashes.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys

CHUNK_BYTES = 64 * 1024
PARTIAL_LINE_S = 0.05  # a line without an end, such as a prompt, is shown after this time

# C++ code of TensorFlow, XLA, CUDA and gRPC logs with absl or in TensorFlow's own older format.
# Fatal lines (F) are the reason for a crash and stay visible.
_NOISE = re.compile(
    rb"[IWE]\d{4} \d\d:\d\d:\d+\.\d+ +\d+ [\w./+-]+\.(?:cc|cpp|cu|h|c):\d+\] "
    rb"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] [\w./+-]+:\d+\] "
    rb"|WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR"
    rb"|WARNING: Logging before (?:InitGoogleLogging|absl::InitializeLog)"
    rb"|(?:DEBUG|INFO|WARNING|ERROR):tensorflow:"
    rb"|To enable the following instructions: .*compiler flags"
)
# The further lines of a message: statuses of gRPC calls, positions in graphs, protocol buffers.
_CONTINUATION = re.compile(
    rb"\s+\S|:|\[\[|Additional GRPC error information|This could happen if the remote target"
    rb"|To silence this warning|Cause: |Please report this to the TensorFlow team"
)
_MESSAGE_START = re.compile(rb"[a-z_0-9]+ \{$")
_MESSAGE_FIELD = re.compile(rb"[a-z_0-9]+: \S+$|$")


class LineSorter:
    """Distinguishes lines of libraries from all others.

    Example:

    >>> sorter = LineSorter()
    >>> sorter.is_noise(b"I0000 00:00:1795241507.837736    5749 cudart_stub.cc:31] no drivers")
    True
    >>> sorter.is_noise(b"Traceback (most recent call last):")
    False
    """

    def __init__(self) -> None:
        self._after_noise = False
        self._in_message = False  # a protocol buffer that a library printed as text
        self._after_message = False

    def is_noise(self, line: bytes) -> bool:
        """Return whether a library wrote a line, or the line that it continues."""
        noise = bool(_NOISE.match(line)) or (self._after_noise and self._is_continuation(line))
        if not noise:
            self._in_message = self._after_message = False
        self._after_noise = noise
        return noise

    def _is_continuation(self, line: bytes) -> bool:
        if self._in_message:
            self._in_message = line != b"}"
            return True
        if _MESSAGE_START.match(line):
            self._in_message = self._after_message = True
            return True
        if self._after_message and _MESSAGE_FIELD.match(line):
            return True
        return bool(_CONTINUATION.match(line))


def sort_lines(source: int, target: int, log: int) -> None:
    """Copy lines from a file number until its end: noise to the log, all others to the target."""
    sorter = LineSorter()
    partial = b""
    shown = 0  # how much of the partial line the target has already
    while True:
        if len(partial) > shown and not select.select([source], [], [], PARTIAL_LINE_S)[0]:
            if not _NOISE.match(partial):
                _write_all(target, partial[shown:])
                shown = len(partial)
            elif not select.select([source], [], [])[0]:
                continue
        chunk = os.read(source, CHUNK_BYTES)
        *lines, partial_after = (partial + chunk).split(b"\n")
        for line in lines:
            if shown:
                _write_all(target, line[shown:] + b"\n")
                shown = 0
            else:
                _write_all(log if sorter.is_noise(line) else target, line + b"\n")
        partial = partial_after
        if not chunk:
            if len(partial) > shown:
                _write_all(
                    log if not shown and sorter.is_noise(partial) else target, partial[shown:]
                )
            return


def _write_all(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]


def main() -> None:
    """Filter standard input to standard output; the command's argument is the log's path."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # the end of the task, and nothing else, ends this
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        sort_lines(0, 1, log)
    except BrokenPipeError:
        sys.exit(0)  # the reader of the task's error output has gone


if __name__ == "__main__":
    main()
