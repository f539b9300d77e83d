"""The memory and the CPU of a command with everything that it starts, looked at while it runs."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import TracebackType

import psutil

from tfps.bench.usage import peak_mib

LOOK_EVERY_S = 0.2


@dataclass
class ProcessTree:
    """Looks at a process and its descendants for as long as a ``with`` block lasts.

    What a process did after the last look at it is not seen: a fifth of a second at the most.
    """

    process: int
    peaks_mib: dict[int, float] = field(default_factory=dict)
    cpu_s: dict[int, float] = field(default_factory=dict)

    def look(self) -> None:
        """Take the numbers of all that live now."""
        try:
            root = psutil.Process(self.process)
            members = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for member in members:
            try:
                times = member.cpu_times()
                self.peaks_mib[member.pid] = peak_mib(member.pid)
            except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError, ValueError):
                continue  # it ended; a process that nobody has reaped has no memory
            self.cpu_s[member.pid] = times.user + times.system

    def __enter__(self) -> ProcessTree:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.look()
            if self._ended.wait(LOOK_EVERY_S):
                return
