"""The threads that train or evaluate models. Pure, but for the attributes of the model."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from tfps.errors import UnsupportedError
from tfps.runtime.coordinator.thread_turn import ThreadTurn

WITHOUT_TRAINING = ("test", "predict")


class MethodsInUse:
    """Keeps threads and callbacks from running the same step of a model at once.

    In an object of its own, for the same reason as `ChiefPrediction`.
    """

    def __init__(self) -> None:
        self._threads: dict[str, int] = {}  # by kind
        self._functions: dict[str, Any] = {}  # of calls within another of the kind

    @classmethod
    def from_model(cls, model: Any) -> MethodsInUse:
        """Return the model's object of this class, created on first use."""
        return model.__dict__.setdefault("_tfps_in_use", cls())

    @contextlib.contextmanager
    def running(self, model: Any, kind: str, turn: ThreadTurn) -> Iterator[None]:
        """Within the block, keep other threads from running a step of this kind.

        Training waits for an evaluation or a prediction that another thread has begun before it:
        it may move variables to other places, where the steps of those do not look for them.

        Args:
            model: whose step it is.
            kind: ``"train"``, which another thread cannot wait for, ``"test"`` or ``"predict"``.
            turn: this thread has it.

        Raises:
            UnsupportedError: another thread trains the model.
        """
        mine = threading.get_ident()
        if kind == "train" and self._threads.get(kind, mine) != mine:
            raise UnsupportedError(
                f"{model.name}: received a call that trains the model from the thread "
                f"{threading.current_thread().name!r} while another thread trains it, expected "
                "one at a time. Wait until that fit() returns; evaluate(), predict(), save() and "
                "reads of weights work from any thread."
            )
        first = {kind} if "train" in self._threads or kind != "train" else {*WITHOUT_TRAINING}
        if any(self._threads.get(each, mine) != mine for each in first):
            with turn.lend(lambda: first.isdisjoint(self._threads)):
                pass
        if kind in self._threads:
            with self._other_function(model, f"{kind}_function"):
                yield
            return
        resets = bool(self._threads) and kind != "predict"  # which leaves metrics alone
        values = [(v, v.numpy()) for v in model.metrics_variables] if resets else []
        self._threads[kind] = mine
        try:
            yield
        finally:
            del self._threads[kind]
            if self._threads and mine not in self._threads.values():  # of another thread's epoch
                for variable, value in values:
                    variable.assign(value)

    @contextlib.contextmanager
    def _other_function(self, model: Any, name: str) -> Iterator[None]:
        """Replace the model's function, which follows the outer call's run, by another."""
        outer = getattr(model, name)
        setattr(model, name, self._functions.get(name))
        try:
            yield
        finally:
            self._functions[name] = getattr(model, name)
            setattr(model, name, outer)
