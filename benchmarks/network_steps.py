"""Steps over links, in a chief: how long they take, and how many bytes they move."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import tfps
from benchmarks.examples import Examples
from benchmarks.network_rows import STOCK, NetworkWay
from benchmarks.traffic import TrafficClock
from benchmarks.training import Epochs
from benchmarks.usage import EpochClock, Sample, clock_callback, steps_way
from benchmarks.workload import Model

EXAMPLES, BATCH = 2048, 64


@dataclass(frozen=True)
class LinkedSteps:
    """Measures as many steps and twice as many, so that what joining costs is left out."""

    way: NetworkWay  # to train
    model: Model  # that is trained
    clock: TrafficClock  # of all tasks

    def measure(
        self, steps: int, *, epoch_s: float, most_steps: int, has_links: bool
    ) -> dict[str, Any]:
        """Measure one turn: steps per second, CPU and bytes of a step.

        Args:
            steps: of all workers, at least.
            epoch_s: longer epochs are tried below it.
            most_steps: but none of more steps.
            has_links: whether sockets count what travels.
        """
        unit_steps = self.way.period_steps * self.way.workers  # that an epoch has a multiple of
        steps = -(-steps // unit_steps) * unit_steps
        with self.way.around():
            strategy: Any = STOCK.begin() if self.way.is_stock else self.way.strategy()
            train = self._stock(strategy) if self.way.is_stock else self._fit(strategy)
            train(1, unit_steps, self.clock)  # functions are traced, and connections open
            while True:
                counted = [counted_bytes(strategy)]
                for count in (steps, 2 * steps):
                    train(1, count, self.clock)
                    counted.append(counted_bytes(strategy))
                sample = difference(*self.clock.samples[-2:])
                # Less is lost in what begins and ends an epoch.
                if sample.seconds >= epoch_s or 4 * steps > most_steps:
                    break
                steps *= 4
        return {
            "samples": [asdict(sample)],
            "details": {} if self.way.is_stock else steps_way(strategy),
            "has_links": has_links,
            **self._bytes(np.diff(counted, axis=0), steps=steps, has_links=has_links),
        }

    def _bytes(self, moved: np.ndarray, *, steps: int, has_links: bool) -> dict[str, Any]:
        """Return a step's bytes, and tfps's own count over that of the sockets.

        Args:
            moved: as `counted_bytes`, by the epoch and by the longer one.
            steps: by which that is longer.
            has_links: whether sockets count what travels.
        """
        found: dict[str, Any] = {}
        sockets = [sum(counts) for counts in self.clock.server_bytes[-2:] if counts]
        if has_links and len(sockets) == 2:
            found["socket_bytes_per_step"] = (sockets[1] - sockets[0]) / steps
        if moved.size:
            up, down = ((moved[1] - moved[0]) / steps).tolist()
            found |= {"up_bytes_per_step": up, "down_bytes_per_step": down}
            direct = [sum(counts) for counts in self.clock.direct_bytes[-2:] if counts]
            if has_links and direct:
                found["accounting"] = int(moved.sum()) / sum(direct)
        return found

    def _fit(self, strategy: Any) -> Epochs:
        """`fit` on an endless dataset that each worker makes, so that no example travels."""
        import keras

        with strategy.scope():
            built = self.model.compiled(keras, self.way.optimizer(keras))
        data = _examples().dataset_function()

        def run(epochs: int, steps: int, clock: EpochClock) -> None:
            callbacks = [clock_callback(keras, clock, steps)]
            built.fit(data, epochs=epochs, steps_per_epoch=steps, verbose=0, callbacks=callbacks)

        return run

    def _stock(self, strategy: Any) -> Epochs:
        return STOCK.prepare(strategy, self.model, 1)(_examples())


def counted_bytes(strategy: Any) -> list[int]:
    """Return the bytes up and down that all tfps servers have counted."""
    if not isinstance(strategy, tfps.ParameterServerStrategy):
        return []
    traffic = strategy.stats().traffic
    return [
        sum(each.sent_bytes for each in traffic if each.direction == direction)
        for direction in ("up", "down")
    ]


def difference(short: Sample, long: Sample) -> Sample:
    """Return by how much an epoch of twice as many steps exceeds one.

    Half of it, where a busy machine has let it end sooner: nothing lasts less than no time.
    """
    seconds = long.seconds - short.seconds
    if seconds <= 0 or long.cpu_seconds <= short.cpu_seconds:
        cpu_s, others_s = long.cpu_seconds / 2, long.other_cpu_seconds / 2
        return Sample(short.steps, long.seconds / 2, cpu_s, others_s)
    others_s = max(0.0, long.other_cpu_seconds - short.other_cpu_seconds)
    return Sample(short.steps, seconds, long.cpu_seconds - short.cpu_seconds, others_s)


def _examples() -> Examples:
    random = np.random.default_rng(0)
    inputs = random.random((EXAMPLES, 28, 28), np.float32)
    return Examples(inputs, random.integers(0, 10, EXAMPLES).astype(np.int32), BATCH)
