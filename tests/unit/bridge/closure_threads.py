"""A queue of closures with threads instead of workers, and closures that end on request."""

from __future__ import annotations

import queue
import threading

import tensorflow as tf

from tfps.bridge.closures.closure_queue import ClosureQueue

DEADLINE_S = 30.0


class Run:
    """One execution of a closure."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.error: Exception | None = None

    def end(self, error: Exception | None = None) -> None:
        self.error = error
        self.goes_on.set()


class Closure:
    """A closure each of whose executions waits until the test ends it, in the way it chooses."""

    tag = None

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.began: queue.Queue[Run] = queue.Queue()
        self.cancelled = threading.Event()
        self.ends_at_once = False

    def mark_cancelled(self) -> None:
        self.cancelled.set()

    def execute(self) -> None:
        run = Run()
        self.runs.append(run)
        self.began.put(run)
        assert self.ends_at_once or run.goes_on.wait(DEADLINE_S)
        if run.error:
            raise run.error

    def next_run(self) -> Run:
        return self.began.get(timeout=DEADLINE_S)


class Cluster:
    """A queue and threads that work as TensorFlow's do."""

    def __init__(self, workers: int) -> None:
        self.queue = ClosureQueue()
        self.taken: queue.Queue[tuple[int, Closure]] = queue.Queue()
        self.idle = [threading.Event() for _ in range(workers)]
        self.threads = [
            threading.Thread(target=self._work, args=[worker]) for worker in range(workers)
        ]
        for thread in self.threads:
            thread.start()

    def close(self) -> None:
        self.queue.stop()
        for thread in self.threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

    def _work(self, worker: int) -> None:
        while True:
            self.idle[worker].set()
            closure = self.queue.get(tag=worker)
            self.idle[worker].clear()
            if closure is None:
                return
            self.taken.put((worker, closure))
            try:
                closure.execute()
            except tf.errors.CancelledError:
                self.queue.put_back(closure)
            except Exception as error:  # noqa: BLE001
                self.queue.mark_failed(error)
            else:
                self.queue.mark_finished()

    def put(self, *, ends_at_once: bool = False) -> Closure:
        closure = Closure()
        closure.ends_at_once = ends_at_once
        self.queue.put(closure)
        return closure

    def who_took(self, closure: Closure) -> tuple[int, Run]:
        worker, taken = self.taken.get(timeout=DEADLINE_S)
        assert taken is closure
        return worker, closure.next_run()
