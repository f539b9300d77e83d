"""Records the statistics of a strategy's job and the resources of its tasks."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import weakref
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfps.errors import StrategyClosed
from tfps.observe.cluster_warning import LOSS_GROWTH
from tfps.observe.recorder import Recorder, find_record_folder
from tfps.observe.usage import measure_usage
from tfps.runtime.coordinator.control_plane import NoSuchFunction, fail_lost_servers_at_once
from tfps.strategy.reading.run_record import (
    describe_run,
    find_largest_variables,
    read_loss,
    read_values,
)
from tfps.strategy.reading.stats import StrategyWithStats, take_stats
from tfps.transport import tokens

# Each takes a millisecond of the chief.
MOST_TASKS_PER_LINE = 10
MOST_LOOKS = 5  # at the variables of a job that diverges; servers keep the function of each


def start_record(strategy: StrategyWithStats) -> None:
    """Start the record of a strategy's job, if ``TFPS_RECORD`` names a folder."""
    folder = find_record_folder()
    if folder is not None:
        recorder = Recorder(folder, read=JobReader(strategy).read)
        strategy.runtime.dependents.add(recorder)
        recorder.start()


class JobReader:
    """Reads the fields of one line of the record.

    Args:
        strategy: the strategy, which this object does not keep alive.
    """

    def __init__(self, strategy: StrategyWithStats) -> None:
        self._strategy = weakref.ref(strategy)
        self._usage: dict[str, Any] = {}  # of each task, as it was measured last
        self._least_loss, self._looks, self._values = math.inf, 0, dict[str, Any]()
        runtime = strategy.runtime
        channels = {f"ps {server.index}": server.channel for server in runtime.servers}
        channels |= {f"worker {i}": channel for i, channel in enumerate(runtime.worker_channels)}
        # A device of this process has no usage of its own.
        self._channels = channels if runtime.processes else {}
        self._next_tasks = itertools.cycle(self._channels)

    def read(self) -> Mapping[str, Any] | None:
        """Return the statistics and the usage of tasks; None once the strategy is closed.

        While a server is lost, the statistics are the states of all tasks alone.
        """
        strategy = self._strategy()
        if strategy is None:
            return None
        tasks = strategy.tasks
        stats: dict[str, Any] = {"tasks": tasks}
        more: dict[str, Any] = {}
        try:
            with fail_lost_servers_at_once():
                stats = dataclasses.asdict(take_stats(strategy))
                more = self._describe(strategy)
                self._measure(tasks)
        except tf.errors.OpError:
            pass  # a server was lost just now: the line says which tasks live
        except StrategyClosed:
            return None
        usage = {"chief 0": dataclasses.asdict(measure_usage()), **self._usage}
        return {"usage": usage, "stats": stats, **more}

    def _describe(self, strategy: StrategyWithStats) -> dict[str, Any]:
        """Return what warnings need beside the statistics."""
        runtime, run = strategy.runtime, strategy.run_state.newest_run
        loss = read_loss(run) if run is not None and run.changes_variables else None
        if loss is not None and not abs(loss) < LOSS_GROWTH * self._least_loss:
            if self._looks < MOST_LOOKS:
                self._looks += 1
                self._values = read_values(runtime)
        elif loss is not None:
            self._least_loss = min(self._least_loss, abs(loss))
        return {
            "mode": repr(strategy.consistency),
            "largest": find_largest_variables(runtime.plan),
            "traces": dict(runtime.traces),
            "run": describe_run(run, runtime) if run is not None and run.running else None,
            "loss": loss if loss is None or math.isfinite(loss) else str(loss),
            **self._values,
        }

    def _measure(self, tasks: Mapping[str, str]) -> None:
        """Ask some of the tasks that live for their usage; a lost task has none."""
        self._usage = {name: each for name, each in self._usage.items() if tasks[name] == "alive"}
        for name in itertools.islice(
            self._next_tasks, min(MOST_TASKS_PER_LINE, len(self._channels))
        ):
            if tasks[name] == "alive":
                try:
                    reply = self._channels[name].ask(tokens.USAGE, patience_s=0.0)
                except (NoSuchFunction, tf.errors.UnavailableError):
                    continue  # a plain TensorFlow server, or a task that was lost just now
                self._usage[name] = json.loads(bytes(reply))
