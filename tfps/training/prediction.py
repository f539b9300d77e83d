"""Run `predict` on the workers, and return outputs in the input's order."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfps.bridge.functions.server_function import trace_server_function
from tfps.bridge.keras_private import concat, tree
from tfps.bridge.step_scope import current_step
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.runtime.program.program import is_metric, is_seed
from tfps.training.epoch_runner import EpochRunner
from tfps.training.fit_strategy import FitStrategy
from tfps.training.input.epoch_iterator import TicketIterator, TicketRunRequest
from tfps.training.run.ticket_run import TicketRun

# Below, sending out closures costs more than the chief needs to predict itself.
MIN_BATCHES_PER_WORKER = 4


def is_worth_distributing(batches: int | None, *, workers: int) -> bool:
    """Return whether a prediction has enough batches, or an unknown number, for the workers.

    >>> is_worth_distributing(8, workers=2), is_worth_distributing(7, workers=2)
    (True, False)
    """
    return batches is None or batches >= MIN_BATCHES_PER_WORKER * workers


def can_predict_on_workers(model: Any) -> bool:
    """Return whether no run is open and workers can run the model's `predict_step`.

    A class that makes its own predict function runs it on the chief.
    """
    strategy = model._distribute_strategy
    return (
        strategy.run_state.run is None
        and model.built
        and not model.run_eagerly
        and type(model).make_predict_function is keras.Model.make_predict_function
        and any(isinstance(v._value, ServerVariable) for v in model.variables)
        and all(
            isinstance(v._value, ServerVariable) or is_metric(v) or is_seed(v)
            for v in model.variables
        )
    )


class Outputs:
    """Stores the outputs that workers have sent, by the batch's position. Pure."""

    def __init__(self) -> None:
        self._components: dict[int, list[Any]] = {}
        self._lock = threading.Lock()

    def put(self, position: int, components: Sequence[Any]) -> None:
        """Store a batch's outputs; a batch that two workers have predicted is kept once."""
        with self._lock:
            self._components[position] = list(components)

    def take(self, position: int) -> list[Any] | None:
        """Remove and return a batch's outputs, None if they have not come."""
        with self._lock:
            return self._components.pop(position, None)

    def clear(self) -> None:
        with self._lock:
            self._components.clear()


class Predictor(EpochRunner):
    """Runs a model's `predict_step` on the workers; each step sends its outputs to the chief.

    Args:
        model: the model.
        strategy: ours.
    """

    def __init__(self, model: Any, *, strategy: FitStrategy) -> None:
        super().__init__(model, strategy=strategy, step="predict")
        self.outputs = Outputs()
        self._structure: Any = None

    @property
    def completed(self) -> int | None:
        """The completed steps of the current run; None if there is no run."""
        return None if self._run is None else self._run.completed

    def batch(self, components: Sequence[Any]) -> Any:
        """Return one batch's outputs in the structure that `predict_step` returned."""
        flat = [tf.constant(component) for component in components]
        return tf.nest.pack_sequence_as(self._structure, flat, expand_composites=True)

    def _step(self) -> Any:
        def run(batch: Any) -> Any:
            batch = tf.nest.map_structure(
                lambda item: None if isinstance(item, tf.experimental.Optional) else item, batch
            )
            outputs = tf.nest.map_structure(_to_tensor, self._model.predict_step(batch))
            step = current_step()
            position = None if step is None else step.position
            if step is None or position is None:
                self._structure = tf.nest.map_structure(tf.type_spec_from_value, outputs)
                return {"sent": tf.constant(0, tf.int64)}
            send = functools.partial(self._send_to_chief, position)
            return {"sent": step.merge_replicas(send, tf.nest.flatten(outputs))}

        return run

    def _send_to_chief(self, position: tf.Tensor, outputs: Sequence[Any]) -> tf.Tensor:
        flat = tf.nest.flatten(outputs, expand_composites=True)
        chief = self._strategy.runtime.topology.chief
        receive = trace_server_function(
            self._receive,
            device=chief,
            signature=[
                tf.TensorSpec([], tf.int64),
                *(tf.TensorSpec(None, component.dtype) for component in flat),
            ],
        )
        (sent,) = tf.raw_ops.RemoteCall(
            target=chief, args=[position, *flat], Tout=[tf.int64], f=receive
        )
        return tf.ensure_shape(sent, [])

    def _receive(self, position: tf.Tensor, *components: tf.Tensor) -> list[tf.Tensor]:
        return [tf.numpy_function(self._store_outputs, [position, *components], tf.int64)]

    def _store_outputs(
        self, position: np.ndarray[Any, Any], *components: Any
    ) -> np.ndarray[Any, Any]:
        self.outputs.put(int(position), components)
        return np.array(1, np.int64)

    def _write_results(self, run: TicketRun) -> None:
        """Write the states of metrics into the model; a prediction has no logs."""
        self._write_metrics(run)


def _to_tensor(output: Any) -> Any:
    """Return a number or a text as the tensor that a tf.function of Keras makes of it."""
    return output if tf.is_tensor(output) else tf.convert_to_tensor(output)


class PredictionIterator(TicketIterator):
    """Yields (first step, last step, iterator over the outputs of batches in order).

    Args:
        predictor: of the model.
        options: as `TicketIterator` takes them.
    """

    def __init__(self, *, predictor: Predictor, **options: Any) -> None:
        super().__init__(**options)
        self._predictor = predictor
        self._results: _Results | None = None

    def __next__(self) -> tuple[int, int, Any]:
        begin, end, request = super().__next__()
        if self._results is None:
            self._results = _Results(self._predictor, request)
        return begin, end, self._results


class _Results:
    """Iterates over the outputs of one pass, and waits for each batch."""

    def __init__(self, predictor: Predictor, request: TicketRunRequest) -> None:
        self._predictor, self._request = predictor, request
        self._position = 0
        self._ended = False
        predictor.outputs.clear()

    def __next__(self) -> Any:
        while (components := self._predictor.outputs.take(self._position)) is None:
            if self._ended:
                raise StopIteration
            self._advance()
        self._position += 1
        return self._predictor.batch(components)

    def _advance(self) -> None:
        """Wait for one more batch, whichever it is."""
        upto = max(self._position, self._predictor.completed or 0) + 1
        tickets = self._request.tickets
        self._request.upto_steps = upto if tickets is None else min(upto, tickets)
        try:
            self._predictor(self._request)
        except StopIteration:
            self._ended = True
        else:
            self._ended = self._predictor.completed is None  # the run is over


class JoinedPrediction:
    """The `model.predict_function` while workers predict; Keras drops it when the model compiles.

    Args:
        predictor: of the model; kept with it.
    """

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor

    def __call__(self, batches: list[Any]) -> Any:
        """Return the outputs of one execution's batches, joined to one batch."""
        if len(batches) == 1:
            return batches[0]
        return tree.map_structure(lambda *parts: concat(parts), *batches)
