"""A compiler of the steps of `fit`, `evaluate` and `predict` into programs for the cluster."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfps.bridge.functions.traced_graph import compute_traced_value
from tfps.bridge.step_scope import current_step, outside_step
from tfps.consistency.local_steps import LocalSteps
from tfps.consistency.mode import Mode
from tfps.consistency.modes import Asynchronous
from tfps.errors import UnsupportedError
from tfps.runtime.compile.compiled import CompiledProgram
from tfps.runtime.program.discovery import discover_program
from tfps.runtime.program.local_training import apply_mode
from tfps.runtime.program.mirroring import mirror_weights
from tfps.runtime.program.program import Program
from tfps.runtime.program.step_results import describe_output
from tfps.runtime.program.tables import choose_row_tables
from tfps.runtime.worker.closure_run import BatchSource
from tfps.training.batch_hooks import BatchHooks
from tfps.training.fit_strategy import FitStrategy
from tfps.training.input.batch import relaxed_spec
from tfps.training.input.one_batch import OneBatch
from tfps.training.run.mirrored_home import check_copies

PREDICT_TRAINS = (
    "{}: received a predict_step that calls an optimizer, expected one that only predicts. Train "
    "in test_step with evaluate(), or in a scheduled function."
)
# Those of the newest two inputs, as of a `fit` on arrays and one on a dataset in turn.
KEPT_PROGRAMS = 2
NO_TENSOR = (
    "{}: received {} under {!r} in the result of {}_step, expected a list of tensors of one shape "
    "and type: Keras makes one tensor of a list. Return a tuple, or a dict with a name for each."
)
_numbers = itertools.count()


class StepCompiler:
    """Compiles one of a model's steps, and keeps what it has compiled for the newest input.

    Args:
        model: of this strategy.
        strategy: ours.
        kind: ``"train"``, ``"test"`` or ``"predict"``.

    Attributes:
        compiled: the programs, by what they were compiled for.
        is_new: whether no step of what was compiled last has ended.
    """

    def __init__(self, model: Any, *, strategy: FitStrategy, kind: str) -> None:
        self._model, self._strategy, self._kind = model, strategy, kind
        self.compiled: dict[Any, CompiledProgram] = {}
        self.is_new = False
        self._traces = 0
        self._specs: dict[type[BatchSource], Any] = {}  # of the newest batches of each kind

    def compile(
        self,
        source: BatchSource,
        *,
        step: Callable[[Any], Any],
        hooks: BatchHooks,
        warm_up_mode: LocalSteps | None = None,
    ) -> CompiledProgram:
        """Return the program of a step, compiled for the servers and the workers.

        Args:
            source: the source of batches.
            step: from a batch to logs.
            hooks: of the loop that follows the run.
            warm_up_mode: the mode of a warm-up; None compiles for the mode of the strategy.
        """
        if source.may_widen_spec and type(source) in self._specs:
            # As in Keras: one trace for the first shape, and one for all others.
            source.batch_spec = relaxed_spec(source.batch_spec, self._specs[type(source)])
        self._specs[type(source)] = source.batch_spec
        key = (source.trace_key(), hooks.stops_at_nan, warm_up_mode)
        if key not in self.compiled or not self.compiled[key].is_current:
            strategy, self.is_new = self._strategy, True
            self._traces += 1
            strategy.runtime.traces[f"the {self._kind} step of {self._model.name}"] = self._traces
            program = Program(
                name=f"{self._kind}_{next(_numbers)}",
                step=step,
                batch_spec=source.batch_spec,
                changes_variables=self._kind == "train",
                keras_metrics=self._model.metrics,
                is_sequential=self._is_sequential(source),
                devices=strategy.devices,
                stops_at_nan=hooks.stops_at_nan,
            )
            with self.compiling(), strategy.scope():
                program = discover_program(program, strategy)
                mode = warm_up_mode or self._choose_mode(program)
                codecs = strategy.runtime.compression if warm_up_mode is None else None
                program = apply_mode(
                    program, mode, compression=codecs, adds_counts=warm_up_mode is None
                )
                program = choose_row_tables(program)
                if self._kind == "train" and not isinstance(source, OneBatch):
                    program = mirror_weights(
                        program,
                        strategy.runtime.is_mirrored,
                        can_add_up=strategy.runtime.data_plane.has_peers,
                    )
                if program.schedule.mirrored is not None:
                    check_copies(program.schedule.mirrored, strategy.runtime.worker_channels)
                strategy.updates.get_program_updates(
                    program
                )  # what optimizers have settles before a trace
            # What older inputs, a warm-up and programs of moved variables hold on servers is freed.
            kept = [k for k, each in self.compiled.items() if each.is_current and k[-1] is None]
            self.compiled = {k: self.compiled[k] for k in kept[1 - KEPT_PROGRAMS :]}
            with self.compiling():
                self.compiled[key] = CompiledProgram(
                    program,
                    runtime=strategy.runtime,
                    source=source,
                    get_update=strategy.updates.get_update,
                )
        compiled = self.compiled[key] = self.compiled.pop(key)  # now the newest
        compiled.source = source
        return compiled

    def compiling(self) -> contextlib.AbstractContextManager[None]:
        """Show in the progress line that a step is being compiled, while the context is open."""
        progress = self._strategy.run_state.progress
        if progress is None or not self.is_new:
            return contextlib.nullcontext()
        kind = "training" if self._kind == "train" else "evaluation"
        return progress.show_during(f"compiling the {kind} step")

    def try_step(self, batch_spec: Any) -> None:
        """Trace the step of `fit` or `evaluate` for the error that it raises; keep nothing of it.

        Args:
            batch_spec: structure of `tf.TypeSpec` of a batch.
        """
        program = Program(
            name=f"{self._kind}_{next(_numbers)}",
            step=keras_step(self._model, self._kind),
            batch_spec=batch_spec,
            changes_variables=self._kind == "train",
            devices=self._strategy.devices,
        )
        with self._strategy.scope():
            discover_program(program, self._strategy)

    def _is_sequential(self, source: BatchSource) -> bool:
        """Return whether no two steps of a run, nor parts of one, are computed at the same time."""
        is_alone = self._strategy.runtime.workers == 1 or isinstance(source, OneBatch)
        return is_alone and len(self._strategy.devices.names) == 1

    def _choose_mode(self, program: Program) -> Mode:
        """Return the mode of the strategy, without rounds where `evaluate` has no gradients.

        Raises:
            UnsupportedError: a `predict_step` calls an optimizer.
        """
        if self._kind == "predict" and program.optimizer_calls:
            raise UnsupportedError(PREDICT_TRAINS.format(self._model.name))
        if self._kind == "train" or program.optimizer_calls:
            return self._strategy.consistency
        return Asynchronous()  # what a late worker assigns counts, too


def keras_step(model: Any, kind: str, *, stacks: bool = False) -> Callable[[Any], Any]:
    """Return a model's `train_step` or `test_step`; `stacks` refuses lists that are no tensors."""
    step = model.train_step if kind == "train" else model.test_step
    strategy = model._distribute_strategy

    def create_variable(create: Callable[..., Any], **options: Any) -> Any:
        """Create a `tf.Variable` of the step on a server; TensorFlow refuses one of each trace."""
        if current_step() is None:
            return create(**options)  # called below
        initial = options["initial_value"]
        if tf.is_tensor(initial) and not hasattr(initial, "numpy"):
            options["initial_value"] = _compute_initial_value(initial)
        with outside_step(), strategy.scope():
            return tf.Variable(**options)

    def run(batch: Any) -> Any:
        batch = tf.nest.map_structure(
            lambda item: None if isinstance(item, tf.experimental.Optional) else item, batch
        )
        with tf.variable_creator_scope(create_variable):
            outputs = step(batch)
        outputs = tf.nest.map_structure(_to_tensor, outputs)
        if stacks:  # later, for the totals of metrics; what is refused is known now
            stack_lists(outputs, model=model.name, kind=kind)
        return outputs

    return run


def stack_lists(outputs: Any, *, model: str, kind: str) -> Any:
    """Return the outputs of a step with one tensor for each list, as Keras's loops return them.

    Raises:
        UnsupportedError: the values of a list make no tensor.
    """

    def stack(name: Any, value: Any) -> Any:
        try:
            return keras.tree.traverse(
                lambda v: tf.convert_to_tensor(v) if isinstance(v, list) else None, value
            )
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            received = tf.nest.map_structure(describe_output, value)
            raise UnsupportedError(NO_TENSOR.format(model, received, name, kind)) from error

    is_named = isinstance(outputs, dict)
    return {name: stack(name, outputs[name]) for name in outputs} if is_named else outputs


def _compute_initial_value(tensor: tf.Tensor) -> tf.Tensor:
    """Compute the initial value of a variable that a step makes, before the first batch."""
    try:
        return compute_traced_value(tensor)
    except ValueError as error:
        raise UnsupportedError(
            f"tf.Variable in a step: received the initial value {tensor.name!r}, which depends on "
            "the batch, expected one that does not. Make it from a constant of its shape, such as "
            "tf.zeros(...), and assign the value in the step."
        ) from error


def _to_tensor(output: Any) -> Any:
    """Return an output of a step as a tensor, as a `tf.function` returns it; None stays None."""
    # A metric's result may be its variable, which is another one outside of the step.
    is_variable = isinstance(output, (keras.Variable, tf.Variable))
    if output is None or (tf.is_tensor(output) and not is_variable):
        return output
    return tf.convert_to_tensor(output)
