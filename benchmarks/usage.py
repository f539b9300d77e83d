"""Wall clock, CPU and memory of the processes that take part in a case."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

import tfps

# The system's own count of the most memory, so that no moment is missed between two looks.
PEAK = re.compile(r"^VmHWM:\s*(\d+) kB$", re.MULTILINE)
SWITCHES = re.compile(r"^voluntary_ctxt_switches:\s*(\d+)$", re.MULTILINE)
EVERY = ""  # all processes, whatever their role


@dataclass(frozen=True)
class Sample:
    """One measured epoch."""

    steps: int  # of all workers together
    seconds: float
    cpu_seconds: float  # of all processes that took part
    other_cpu_seconds: float  # of everything else on the machine: how quiet it was
    group_cpu_seconds: Mapping[str, float] = field(default_factory=dict)  # by role, if asked for
    # Voluntary context switches: a thread waits, for another one or for a message.
    group_switches: Mapping[str, int] = field(default_factory=dict)

    @property
    def steps_per_s(self) -> float:
        return self.steps / self.seconds

    @property
    def cpu_ms_per_step(self) -> float:
        """Return the CPU milliseconds of a step on all processors (before a step: all so far)."""
        return 1e3 * self.cpu_seconds / max(1, self.steps)

    def group_cpu_ms_per_step(self, group: str) -> float:
        """Return the CPU milliseconds of a step in the processes of one role."""
        return 1e3 * self.group_cpu_seconds[group] / max(1, self.steps)

    def group_switches_per_step(self, group: str) -> float:
        """Return the voluntary context switches of a step in the processes of one role."""
        return self.group_switches[group] / max(1, self.steps)

    @property
    def other_cores(self) -> float:
        """How many cores were busy with something else."""
        return self.other_cpu_seconds / self.seconds


class EpochClock:
    """Measures epochs: wall clock, and CPU of this process, the given ones and their children.

    The groups are the processes of each role that is to be told apart.
    """

    def __init__(
        self, processes: Sequence[int], groups: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        counted = {EVERY: [os.getpid(), *processes], **(groups or {})}
        self._groups = {name: list(map(psutil.Process, each)) for name, each in counted.items()}
        self._begun: tuple[float, dict[str, float], float] = (0.0, {}, 0.0)
        self._begun_switches: dict[str, int] = {}
        self.samples: list[Sample] = []

    def begin(self) -> None:
        self._begun_switches = self._count_switches()
        self._begun = (_machine_cpu_s(), self._cpu_s(), time.perf_counter())

    def end(self, steps: int) -> None:
        """End an epoch of `steps` steps."""
        now_s = time.perf_counter()
        begun_machine_s, begun_cpu_s, begun_s = self._begun
        groups_s = {name: cpu_s - begun_cpu_s[name] for name, cpu_s in self._cpu_s().items()}
        ours_s = groups_s.pop(EVERY)
        others_s = max(0.0, _machine_cpu_s() - begun_machine_s - ours_s)
        begun = self._begun_switches
        switches = {name: now - begun[name] for name, now in self._count_switches().items()}
        self.samples.append(Sample(steps, now_s - begun_s, ours_s, others_s, groups_s, switches))

    def _cpu_s(self) -> dict[str, float]:
        """Return the CPU seconds of each group until now."""
        return {name: sum(map(_cpu_s, group)) for name, group in self._groups.items()}

    def _count_switches(self) -> dict[str, int]:
        """Return the voluntary context switches of each role until now."""
        groups = (name for name in self._groups if name != EVERY)
        return {
            name: sum(count_switches(each.pid) for each in self._groups[name]) for name in groups
        }


def clock_callback(keras: Any, clock: EpochClock, steps: int, *, rounds: int = 1) -> Any:
    """Make a callback of `keras` or `tf_keras` that shows a clock epochs of `steps` steps.

    An epoch of the clock is `rounds` epochs of Keras.
    """

    class ClockCallback(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch % rounds == 0:
                clock.begin()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch % rounds == rounds - 1:
                clock.end(rounds * steps)

    return ClockCallback()


def steps_way(strategy: Any) -> dict[str, Any]:
    """Return which transport the steps used, for the report; empty for other strategies."""
    if not isinstance(strategy, tfps.ParameterServerStrategy):
        return {}
    stats = strategy.stats()
    return {"fallback_steps": stats.fallback_steps, "transports": stats.transports}


def measured_fit(
    model: Any, *data: Any, clock: EpochClock, steps: int, epochs: int, **options: Any
) -> dict[str, Any]:
    """Fit for `epochs` epochs after one that traces, and return them in the form of `Results`."""
    import keras

    callbacks = [clock_callback(keras, clock, steps)]
    model.fit(*data, epochs=1 + epochs, verbose=0, callbacks=callbacks, **options)
    samples = [asdict(sample) for sample in clock.samples[1:]]
    return {"samples": samples, "details": steps_way(model.distribute_strategy)}


def peak_mib(process: int) -> float:
    """Return the largest resident set of a process since it began; shared pages count in full."""
    return peak_of(Path(f"/proc/{process}/status").read_text())


def peak_of(status: str) -> float:
    """Return the largest memory in MiB that the text of a process's status file names."""
    found = PEAK.search(status)
    if found is None:
        raise ValueError(f"expected a line with VmHWM, received {status!r}")
    return int(found[1]) / 1024


def count_switches(process: int) -> int:
    """Return the voluntary context switches of a process's threads; psutil has one thread's."""
    found = 0
    for status in Path(f"/proc/{process}/task").glob("*/status"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found += sum(map(int, SWITCHES.findall(status.read_text())))
    return found


def _cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its children since they started."""
    times = [member.cpu_times() for member in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def _machine_cpu_s() -> float:
    """CPU seconds of the whole machine since it started, with what its host took away."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)
