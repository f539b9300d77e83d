"""The hooks with which our strategy replaces Keras's trainer: see `bridge.trainer_hooks`."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.keras_private import TensorFlowTrainer, get_data_adapter
from tfps.bridge.method_scope import is_any_strategy_disabled, runs_eagerly
from tfps.bridge.step_scope import record_tfps_errors
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.errors import UnsupportedError
from tfps.optimizers.wrapped import assign_strategy
from tfps.training.batch_callbacks import BATCH_HOOKS
from tfps.training.batch_hooks import BatchHooks
from tfps.training.chief_prediction import ChiefPrediction
from tfps.training.epoch_runner import EpochRunner
from tfps.training.fit_strategy import FitStrategy
from tfps.training.input.dataset_function import (
    DatasetFunctionAdapter,
    dataset_of_pipeline,
    is_dataset_function,
)
from tfps.training.input.early_dataset import move_to_this_task
from tfps.training.input.endless_input import refuse_endless_input
from tfps.training.input.epoch_iterator import TicketIterator
from tfps.training.methods_in_use import MethodsInUse
from tfps.training.prediction import (
    JoinedPrediction,
    PredictionIterator,
    Predictor,
    can_predict_on_workers,
    is_worth_distributing,
)
from tfps.training.report.input_report import InputReport
from tfps.training.report.progress import TrainingProgress
from tfps.training.report.restart_report import RestartReport
from tfps.training.report.step_rate import SAMPLE_PERIOD_S
from tfps.training.resume import find_resume
from tfps.training.step_compiler import PREDICT_TRAINS
from tfps.training.symbolic_build import build_symbolically
from tfps.training.worker_use import WORKER_USE

logger = logging.getLogger(__name__)

# Overriding one of these takes the training out of the library's hands. What overrides `fit` or
# `evaluate`, as trackers do for all models, comes here only if it calls Keras's own.
HOOKED_METHODS = ("make_train_function", "make_test_function")


class Trainer:
    """Implements `TrainerHooks` for all strategies, since Keras is patched once."""

    def is_tfps_strategy(self, strategy: object) -> bool:
        return bool(getattr(strategy, "_is_tfps_strategy", False))

    def make_function(self, model: Any, kind: str, force: bool) -> None:
        attribute = f"{kind}_function"
        if _asks_for_xla(model):
            warn_once(model, "jit_compile", JIT_IGNORED, model.name)
        if kind == "train" and _averages_summed_loss(model):
            warn_once(model, "summed_loss", SUMMED_LOSS, model.name)
        if getattr(model, attribute) is None or force:
            function = EpochRunner(model, strategy=model._distribute_strategy, step=kind)
            setattr(model, attribute, function)

    def build(self, model: Any, iterator: Any, data_batch: Any) -> None:
        if runs_eagerly(model):
            strategy = model.__dict__["_tfps_eager_strategy"]
            if iterator is not None:
                data_batch = iterator._distributed_dataset.element_spec
        else:
            _check_not_overridden(model)
            strategy = model._distribute_strategy
            if iterator is not None:
                strategy.run_state.source = iterator.source
                data_batch = iterator.batch_spec
        build_symbolically(model, strategy, data_batch)

    def create_epoch_iterator(self, strategy: FitStrategy, options: dict[str, Any]) -> Any:
        strategy.run_state.guard.wait_for_silent_workers()
        predictor = strategy.run_state.predictor
        if predictor is not None:
            return PredictionIterator(predictor=predictor, strategy=strategy, **options)
        return TicketIterator(strategy=strategy, **options)

    def predict(self, model: Any, original: Any, x: Any, options: dict[str, Any]) -> Any:
        """Predict on the workers, or on the chief where that is quicker or the workers are busy."""
        with model._distribute_strategy.runtime.turn.hold():
            return self._predict(model, original, x, options)

    def _predict(self, model: Any, original: Any, x: Any, options: dict[str, Any]) -> Any:
        strategy = model._distribute_strategy
        strategy.runtime.refuse_if_closed()
        if is_dataset_function(x):  # of one pipeline, whose rows have an order
            function = DatasetFunctionAdapter.from_input(x, {}, shards=1).function
            x = dataset_of_pipeline(function, index=0, pipelines=1, strategy=strategy)
        refuse_endless_input("predict", {"x": x, **options}, strategy=strategy)
        if isinstance(x, tf.data.Dataset):
            x = move_to_this_task(x)
        steps = options.get("steps")
        adapter = get_data_adapter(
            x, batch_size=options.get("batch_size"), steps_per_epoch=steps, shuffle=False
        )
        if not can_predict_on_workers(model) or not is_worth_distributing(
            steps or adapter.num_batches, workers=strategy.runtime.workers
        ):
            with self.predicting_on_chief(model):
                return original(model, adapter, **options)
        with MethodsInUse.from_model(model).running(model, "predict", strategy.runtime.turn):
            with _predicting_on_workers(model, strategy):
                return original(model, adapter, **options)

    def predicting_on_chief(self, model: Any) -> contextlib.AbstractContextManager[None]:
        return ChiefPrediction.from_model(model).predicting(model)

    @contextlib.contextmanager
    def running_eagerly(self, model: Any) -> Iterator[None]:
        """Run Keras's own loop on the chief; each read and update goes to the servers."""
        _check_not_overridden(model)
        strategy = model._distribute_strategy
        strategy.runtime.refuse_if_closed()
        strategy.run_state.drain()
        warn_once(model, "run_eagerly", RUNS_EAGERLY, model.name)
        attributes = model.__dict__
        functions = {name: attributes.pop(name) for name in ("train_function", "test_function")}
        attributes.update(train_function=None, test_function=None, _distribute_strategy=None)
        attributes["_tfps_eager_strategy"] = strategy
        try:
            with private.default_replica_context():  # also where the scope is open
                yield
        finally:
            del attributes["_tfps_eager_strategy"]
            attributes.update(functions, _distribute_strategy=strategy)

    @contextlib.contextmanager
    def following_workers(self, model: Any, kind: str) -> Iterator[None]:
        """Follow a loop of Keras's; if it raises an error, abandon its run."""
        strategy = model._distribute_strategy
        strategy.runtime.refuse_if_closed()
        turn = strategy.runtime.turn
        with turn.hold(), MethodsInUse.from_model(model).running(model, kind, turn):
            outer = strategy.run_state.epoch_runner
            try:
                with strategy.run_state.ending_in_order():
                    yield
            except BaseException as error:
                strategy.run_state.progress = None
                epoch_runner = strategy.run_state.epoch_runner
                if (
                    epoch_runner is not None
                    and epoch_runner is not outer
                    and epoch_runner.is_of_this_thread
                ):
                    epoch_runner.give_up(error)
                raise

    def accessing_weights(self, layer: Any) -> contextlib.AbstractContextManager[None]:
        """Take the turn for a layer's weights, so that no other thread starts the workers."""
        native = next((variable._value for variable in layer.weights), None)
        if not isinstance(native, ServerVariable):
            return contextlib.nullcontext()
        runtime = native._distribute_strategy.runtime
        runtime.refuse_if_closed()
        return runtime.turn.hold()

    def run_callback_hook(self, model: Any, callbacks: Any, call: functools.partial[None]) -> None:
        """Call a hook of all callbacks; watch each callback that may change something."""
        name = call.func.__name__
        kind = next((kind for kind, names in BATCH_HOOKS.items() if name in names), None)
        function = None if kind is None else getattr(model, f"{kind}_function")
        with self._in_callbacks(model):
            if not isinstance(function, EpochRunner) or not function.hooks.watched:
                call()
                return
            everyone, strategy = callbacks.callbacks, model._distribute_strategy
            try:
                for callback in everyone:
                    callbacks.callbacks = [callback]
                    changing = strategy.runtime.followed.refreshed_after(call)
                    if function.hooks.call_watched(callback, model, changing):
                        strategy.run_state.drain()
                        meant_steps = call.args[1] + name.endswith("_end")
                        run = strategy.run_state.newest_run
                        function.hooks.warn_late_change(callback, meant_steps, run.completed)
            finally:
                callbacks.callbacks = everyone

    def _in_callbacks(self, model: Any) -> contextlib.AbstractContextManager[None]:
        """Lend the workers to other threads, so that a hook can wait for such a thread."""
        strategy: FitStrategy = model._distribute_strategy
        state, epoch_runner = strategy.run_state, strategy.run_state.epoch_runner
        is_of_this_thread = epoch_runner is not None and epoch_runner.is_of_this_thread
        return strategy.runtime.turn.lend(
            lambda: not is_of_this_thread or state.epoch_runner is epoch_runner,
            after_s=SAMPLE_PERIOD_S,
        )

    def check_arguments(self, model: Any, method: str, arguments: Mapping[str, Any]) -> None:
        refuse_endless_input(method, arguments, strategy=model._distribute_strategy)
        if method == "fit":
            strategy, resume = model._distribute_strategy, find_resume(arguments.get("callbacks"))
            strategy.run_state.resume = resume
            if resume is not None:
                resume.open(model, strategy, initial_epoch=arguments.get("initial_epoch", 0))

    def check_scope(self, model: Any, method: str) -> None:
        """Refuse a model that is only partly in the scope; warn of one that no worker trains."""
        if runs_eagerly(model):
            return
        optimizer = getattr(model, "optimizer", None)
        is_compiled_in_scope = self.is_tfps_strategy(
            getattr(optimizer, "_distribution_strategy", None)
        )
        is_on_servers = any(isinstance(v._value, ServerVariable) for v in model.variables[:1])
        if is_compiled_in_scope and not is_on_servers:
            raise UnsupportedError(
                f"{model.name}: received a model compiled under strategy.scope() but created "
                "outside of it, so its weights are on no parameter server. Create the model "
                "inside `with strategy.scope():` as well."
            )
        if self.is_tfps_strategy(tf.distribute.get_strategy()):
            raise UnsupportedError(
                f"{model.name}: received a call of {method} under strategy.scope() for a model "
                "created outside of it, which workers cannot run. Create and compile the model "
                f"inside `with strategy.scope():`; {method} may be called anywhere."
            )
        if model._distribute_strategy is None and WORKER_USE.is_possible:
            warn_once(model, "outside scope", OUTSIDE_SCOPE, model.name, method)

    def adopt_callbacks(self, model: Any, callbacks: Any) -> None:
        strategy = model._distribute_strategy
        strategy.run_state.progress = (
            None  # of an outer loop, or of one that has ended with an error
        )
        for position, callback in enumerate(callbacks.callbacks):
            if type(callback) is keras.callbacks.ProgbarLogger:
                ours = TrainingProgress(strategy.run_state)
                ours.set_params(callbacks.params)
                ours.set_model(model)
                callbacks.callbacks[position] = ours
                callbacks._progbar = ours
        resume, strategy.run_state.resume = strategy.run_state.resume, None
        if resume is not None and resume in callbacks.callbacks:
            callbacks.callbacks.remove(resume)
            resume.restore(callbacks.callbacks)
            callbacks.callbacks.append(resume)  # it saves what the others have noted
        if strategy.run_state.recovery is not None:
            for saving in strategy.run_state.recovery.callbacks_for(model):
                saving.set_model(model)
                callbacks.callbacks.append(saving)
                callbacks._async_train = False  # it saves on the thread that trains
        addresses = strategy.runtime.processes.values()
        for report in (InputReport(strategy), RestartReport(addresses)):
            report.set_params(callbacks.params)
            callbacks.callbacks.append(report)

    def begin(self, model: Any, callbacks: Any, kind: str) -> None:
        function = getattr(model, f"{kind}_function")
        if isinstance(function, EpochRunner):  # no eager step
            hooks = function.hooks = BatchHooks(
                callbacks.callbacks, kind=kind, setting=model._distribute_strategy.batch_callbacks
            )
            if hooks.watched:  # they are called one by one, on the thread that trains
                callbacks._async_train = callbacks._async_test = False

    @contextlib.contextmanager
    def building_optimizer(self, optimizer: Any, variables: Any) -> Iterator[None]:
        """Build an optimizer in the scope of its variables, so that slots lie beside them."""
        native = getattr(variables[0], "_value", None) if variables else None
        strategy = getattr(native, "_distribute_strategy", None)
        if strategy is None or not isinstance(native, ServerVariable):
            yield
            return
        assign_strategy(optimizer, strategy)
        with strategy.scope():
            yield

    def apply_outside_step(self, optimizer: Any, gradients: Any, variables: Any) -> bool:
        """Push gradients of the chief to the servers; return False where Keras must apply them.

        Raises:
            UnsupportedError: a `predict_step` on the chief calls an optimizer.
        """
        if not tf.executing_eagerly():
            if is_any_strategy_disabled():
                with record_tfps_errors():
                    raise UnsupportedError(PREDICT_TRAINS.format(optimizer.name))
            return False
        variables = list(variables if variables is not None else optimizer._trainable_variables)
        native = getattr(variables[0], "_value", None) if variables else None
        if not isinstance(native, ServerVariable):
            return False
        strategy = native._distribute_strategy
        strategy.run_state.drain()
        assign_strategy(optimizer, strategy)
        if not optimizer.built:
            optimizer.build(variables)  # which asks `building_optimizer`
        strategy.primitives.apply(optimizer, list(gradients), variables)
        return True


JIT_IGNORED = (
    "%s: tfps ignores jit_compile=True, since XLA cannot compile the exchange with the parameter "
    "servers in the middle of a step. To compile the expensive part of call(), wrap it in "
    "tf.function(jit_compile=True)."
)
SUMMED_LOSS = (
    "the loss of %s has reduction='sum': a synchronous round applies the mean of its workers' "
    "sums, and not the sum over all its examples as one process with an equally large batch. Use "
    "the default reduction, or multiply the learning rate by the number of workers."
)
OUTSIDE_SCOPE = (
    "the model %s was created outside of strategy.scope(), so %s runs in this process alone and "
    "no worker takes part. To use the workers, create and compile the model inside `with "
    "strategy.scope():`."
)
RUNS_EAGERLY = (
    "run_eagerly=True: the steps of %s run eagerly in this process, one after the other, and the "
    "workers wait. Use it only for debugging; to train on the workers, compile the model without "
    "it."
)


def warn_once(model: Any, topic: str, message: str, *arguments: Any) -> None:
    """Log a warning, once for each model and topic."""
    warned_topics = model.__dict__.setdefault("_tfps_warned", set())
    if topic not in warned_topics:
        warned_topics.add(topic)
        logger.warning(message, *arguments)


def _averages_summed_loss(model: Any) -> bool:
    """Return whether rounds average gradients over workers although a loss is a sum."""
    strategy = model._distribute_strategy
    if strategy.runtime.workers == 1 or strategy.consistency.backup_workers is None:
        return False
    losses = tf.nest.flatten(getattr(model, "loss", None))
    return any(getattr(loss, "reduction", None) == "sum" for loss in losses)


def _asks_for_xla(model: Any) -> bool:
    """Return whether the user asked for XLA; Keras's "auto" turns it on for most models."""
    compiled = getattr(model, "_compile_config", None)
    return compiled is not None and compiled.config.get("jit_compile") is True


@contextlib.contextmanager
def _predicting_on_workers(model: Any, strategy: FitStrategy) -> Iterator[None]:
    """Let the loop of Keras's `predict` receive the outputs of the workers, in order."""
    attributes = model.__dict__
    if not isinstance(model.predict_function, JoinedPrediction):
        attributes["predict_function"] = JoinedPrediction(Predictor(model, strategy=strategy))
    with strategy.run_state.predicting(model.predict_function.predictor):
        yield


def _check_not_overridden(model: Any) -> None:
    for name in HOOKED_METHODS:
        if getattr(type(model), name, None) is not getattr(TensorFlowTrainer, name):
            raise UnsupportedError(
                f"{type(model).__name__}: received an override of {name}(), which tfps replaces "
                "to train on parameter servers. Move its code to train_step(), test_step() or a "
                "callback."
            )
