"""What a chief process sees of a training: its epochs, and which way the steps took."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tfps.bench.usage import EpochClock, Sample


def clock_callback(keras: Any, clock: EpochClock, steps: int, *, rounds: int = 1) -> Any:
    """Make a callback that lets a clock see epochs.

    Args:
        keras: `keras` or `tf_keras`.
        clock: measures.
        steps: of one of Keras's epochs, of all workers together.
        rounds: how many of Keras's epochs are one of the clock's.
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
    """Say which way the steps took: every report has it."""
    stats = strategy.stats()
    return {"fallback_steps": stats.fallback_steps, "carriers": stats.carriers}


def epochs_answer(strategy: Any, samples: list[Sample]) -> dict[str, Any]:
    """Answer what was measured, in the form that `Results` take."""
    return {"samples": [asdict(sample) for sample in samples], "details": steps_way(strategy)}
