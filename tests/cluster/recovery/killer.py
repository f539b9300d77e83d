"""Ends tasks at random moments, as machines do: several at once, and again while they come back."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import tfps
from tfps.checkpoint.commit import Folder
from tfps.launch import LocalCluster

Task = tuple[str, int]

# A task takes seconds to start again, on a busy machine tens of them.
COMES_BACK_S = 180.0
LOOK_EVERY_S = 0.02
# Within this most of what follows a loss is done: the rest of a task, its start, the restoration.
WHILE_RECOVERING_S = 1.5


class Killer(threading.Thread):
    """For each seed: when all tasks work, kills some at once, and then, soon, some again.

    The supervisor of the tasks starts them again.

    Args:
        strategy: trains meanwhile.
        cluster: has the tasks.
        tasks: that may be killed.
        seeds: decide when, which, and how many.
        folder: of the checkpoints; nothing is killed before there is one.

    Attributes:
        kills: those that were killed at the same moment, for each such moment.
        again: servers that were killed while servers were not back yet.
        times_without_servers: how often every server was gone, or not back yet.
    """

    def __init__(
        self,
        strategy: tfps.ParameterServerStrategy,
        cluster: LocalCluster,
        *,
        tasks: Sequence[Task],
        seeds: Iterable[int],
        folder: Path,
    ) -> None:
        super().__init__(name="killer", daemon=True)
        self._strategy, self._cluster = strategy, cluster
        self._tasks, self._seeds, self._folder = tasks, seeds, Folder(folder)
        self._ends = threading.Event()
        self._error: Exception | None = None
        self.kills: list[list[Task]] = []
        self.again: list[Task] = []
        self.times_without_servers = 0

    def __enter__(self) -> Killer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self.join()

    def check(self) -> None:
        """Check that all seeds were used, and tasks of each kind, and several at once, killed."""
        if self._error is not None:
            raise self._error
        assert not self.is_alive()
        kinds = {kind for kill in self.kills for kind, _ in kill}
        assert kinds == {kind for kind, _ in self._tasks}
        assert max(map(len, self.kills)) > 1
        assert self.again

    def run(self) -> None:
        try:
            for seed in self._seeds:
                self._disturb(random.Random(seed))
            self._kill_once_more()
            self._wait_until_all_work()
        except Exception as error:  # noqa: BLE001 - raised again by `check`
            self._error = error

    def _disturb(self, draws: random.Random) -> None:
        self._wait_until_all_work()
        self._ends.wait(draws.uniform(0.0, 0.5))
        self._kill(draws.sample(self._tasks, draws.randint(1, 3)))
        for _ in range(draws.randint(0, 2)):
            self._ends.wait(draws.uniform(0.0, WHILE_RECOVERING_S))
            self._kill(draws.sample(self._tasks, draws.randint(1, 2)))

    def _kill_once_more(self) -> None:
        """Kill a server, and again as soon as it runs, before it is filled."""
        self._wait_until_all_work()
        (server, *_) = (task for task in self._tasks if task[0] == "ps")
        first = self._cluster.process(server)
        self._kill([server])
        until_s = time.monotonic() + COMES_BACK_S
        while self._cluster.process(server) in (None, first) or self._is_there(server):
            if self._ends.wait(LOOK_EVERY_S) or time.monotonic() > until_s:
                return  # `check` says that none was killed again
        self._kill([server])

    def _kill(self, chosen: Iterable[Task]) -> None:
        away = {task for task in self._tasks if not self._is_there(task)}
        killed = []
        for task in chosen:
            process = self._cluster.process(task)
            if process is not None and process.status() is None and not self._ends.is_set():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
                    killed.append(task)
        self.kills += [killed] if killed else []
        servers = {task for task in self._tasks if task[0] == "ps"}
        self.times_without_servers += servers <= away.union(killed)
        if away & servers:
            self.again += [task for task in killed if task[0] == "ps"]

    def _is_there(self, task: Task) -> bool:
        kind, index = task
        process = self._cluster.process(task)
        if process is None or process.status() is not None:
            return False
        if kind == "ps" and self._strategy.runtime.servers[index].lost is not None:
            return False
        return self._strategy.tasks[f"{kind} {index}"] == "alive"

    def _wait_until_all_work(self) -> None:
        """Wait until all tasks are alive and one more update was made since."""
        until_s = time.monotonic() + COMES_BACK_S
        updates: int | None = None
        while not self._ends.is_set():
            if time.monotonic() > until_s:
                raise TimeoutError(f"{self._strategy.tasks} after {COMES_BACK_S:g} s")
            is_there = all(map(self._is_there, self._tasks)) and self._folder.numbers()
            now = self._strategy.stats().updates_applied if is_there else None
            if updates is not None and now is not None and now > updates:
                return
            updates = now if updates is None else updates
            self._ends.wait(LOOK_EVERY_S)
