"""A command in a terminal: what a person would type into it, and all that appears."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_in_terminal(
    arguments: Sequence[str | Path],
    *,
    deadline_s: float,
    typed: Mapping[str, bytes],
    environment: Mapping[str, str | None],
    folder: Path | None = None,
) -> tuple[int, str]:
    """Run a command in a terminal of its own; return its status and what appeared.

    Args:
        arguments: the program and its arguments.
        deadline_s: how long it may take.
        typed: what is typed, once each, after a text has appeared.
        environment: further variables; None removes one.
        folder: the working directory.
    """
    controller, terminal = pty.openpty()
    variables = {**os.environ, **environment}
    process = subprocess.Popen(
        arguments,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={name: value for name, value in variables.items() if value is not None},
        cwd=folder,
        start_new_session=True,
        preexec_fn=_own_terminal,  # noqa: PLW1509 - it makes one call of the system
    )
    os.close(terminal)
    seen = b""
    waiting = dict(typed)
    ends_at = time.monotonic() + deadline_s
    try:
        while time.monotonic() < ends_at:
            if not select.select([controller], [], [], 0.2)[0]:
                continue
            try:
                seen += os.read(controller, 4096)
            except OSError:  # the terminal is closed on the other side
                break
            for text in [text for text in waiting if text.encode() in seen]:
                os.write(controller, waiting.pop(text))
        status = process.wait(20)
    finally:
        process.kill()
        process.wait()
        os.close(controller)
    return status, seen.decode()


def _own_terminal() -> None:
    """Let a key such as Ctrl-C send its signal to the command."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
