"""The only file that patches Keras. Each patch acts only for models of our strategy.

Keras 3 has no hook for how to run a step: `TensorFlowTrainer` calls `strategy.run` on the chief.
So the code for a parameter-server strategy is patched in here, once, when the first strategy is
created. The rest of Keras's loop (callbacks, validation, history) stays as it is.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

import keras
import numpy as np
import tensorflow as tf

from tfps.bridge import keras_private
from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.table_call import look_up_rows
from tfps.bridge.method_scope import is_strategy_disabled, running_method, runs_eagerly
from tfps.bridge.private_names import check_attributes
from tfps.bridge.random_ops import patch_random_ops
from tfps.bridge.step_scope import current_step
from tfps.bridge.trainer_hooks import TrainerHooks
from tfps.bridge.variables import keras_file
from tfps.bridge.variables.checkpoint_slices import patch_slice_restore
from tfps.bridge.variables.row_blocks import is_large
from tfps.bridge.variables.server_variable import ServerVariable

# Ends with a separator, since Keras searches for it anywhere in a file's name.
PACKAGE_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
Filtered = TypeVar("Filtered", bound=Callable[..., Any])

PUBLIC_METHODS = (
    "fit",
    "evaluate",
    "predict",
    "train_on_batch",
    "test_on_batch",
    "predict_on_batch",
)

_building = threading.local()
_installed = threading.Lock()


def get_current_initializer() -> Any:
    """Return the initializer of the Keras variable that this thread is creating, or None."""
    return getattr(_building, "initializer", None)


def get_current_variable() -> Any:
    """Return the Keras variable that this thread is creating; None for a raw `tf.Variable`."""
    return getattr(_building, "variable", None)


def install_patches(hooks: TrainerHooks) -> None:
    """Install the patches; a second call does nothing."""
    with _installed:
        if getattr(keras_private.TensorFlowTrainer, "_tfps_installed", False):
            return
        check_attributes()
        keras_private.TensorFlowTrainer._tfps_installed = True
    _patch_variables()
    _patch_optimizers(hooks)
    _patch_training(hooks)
    _patch_embedding()
    _patch_normalization()
    _patch_prediction(hooks)
    _patch_saving(hooks)
    _patch_loading(hooks)
    _patch_epoch_iterator(hooks)
    _patch_callbacks(hooks)
    _patch_tracebacks()
    private.patch_nested_functions(current_step)
    private.patch_graph_completion(current_step)
    patch_random_ops(current_step)
    patch_slice_restore()


def _wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace ``owner.name`` by ``wrapper(original, self, ...)``."""
    original = owner.__dict__[name]

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapper(original, self, *args, **kwargs)

    setattr(owner, name, wrapped)


def _patch_variables() -> None:
    def initialize(original: Any, self: Any, value: Any) -> Any:
        previous = get_current_variable()
        _building.variable = self
        try:
            return original(self, value)
        finally:
            _building.variable = previous

    def initialize_with(original: Any, self: Any, initializer: Any) -> Any:
        _building.initializer = initializer
        try:
            return original(self, initializer)
        finally:
            _building.initializer = None

    def make_atomic(operation: str) -> Callable[..., Any]:
        def change(original: Any, self: Any, value: Any) -> Any:
            native = self._value
            if current_step() is None and isinstance(native, ServerVariable):
                # Keras reads, adds and assigns: two workers at once would lose an update.
                value = self._convert_to_tensor(value, dtype=self._dtype)
                getattr(native, operation)(value)
                return self
            return original(self, value)

        return change

    _wrap(keras_private.Variable, "_initialize", initialize)
    _wrap(keras_private.Variable, "_initialize_with_initializer", initialize_with)
    base = keras_private.Variable.__mro__[1]  # the class that defines assign_add for all backends
    for operation in ("assign_add", "assign_sub"):
        _wrap(base, operation, make_atomic(operation))


def _patch_optimizers(hooks: TrainerHooks) -> None:
    def apply(original: Any, self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        step = current_step()
        if step is not None:
            return step.apply(self, list(grads), trainable_variables)
        if hooks.apply_outside_step(self, grads, trainable_variables):
            return None
        return original(self, grads, trainable_variables)

    for owner in (
        keras_private.BaseOptimizer,
        keras_private.LossScaleOptimizer,
        keras_private.MultiOptimizer,
    ):
        _wrap(owner, "apply", apply)

    def build(original: Any, self: Any, variables: Any) -> Any:
        with hooks.building_optimizer(self, variables):
            return original(self, variables)

    def wrap_build(kind: type[Any]) -> None:
        if "build" in vars(kind):
            _wrap(kind, "build", build)

    def begin_subclass(kind: type[Any], /, **kwargs: Any) -> None:
        super(keras_private.BaseOptimizer, kind).__init_subclass__(**kwargs)
        wrap_build(kind)

    for kind in {keras_private.BaseOptimizer, *_subclasses(keras_private.BaseOptimizer)}:
        wrap_build(kind)
    keras_private.BaseOptimizer.__init_subclass__ = classmethod(begin_subclass)


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield all subclasses, some of them several times."""
    known: list[type[Any]] = kind.__subclasses__()
    for subclass in known:
        yield subclass
        yield from _subclasses(subclass)


def _uses_tfps_strategy(hooks: TrainerHooks, model: Any) -> bool:
    return not is_strategy_disabled(model) and hooks.is_tfps_strategy(
        getattr(model, "_distribute_strategy", None)
    )


def _patch_training(hooks: TrainerHooks) -> None:
    def make(kind: str) -> Callable[..., Any]:
        def make_function(original: Any, self: Any, force: bool = False) -> Any:
            if not _uses_tfps_strategy(hooks, self):
                return original(self, force)
            return hooks.make_function(self, kind, force)

        return make_function

    def build(original: Any, self: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        if not _uses_tfps_strategy(hooks, self) and not runs_eagerly(self):
            return original(self, iterator=iterator, data_batch=data_batch)
        return hooks.build(self, iterator, data_batch)

    def run(method: str) -> Callable[..., Any]:
        def run_method(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            if not _uses_tfps_strategy(hooks, self):
                hooks.check_scope(self, method)
                return original(self, *args, **kwargs)
            hooks.check_arguments(self, method, _bind_arguments(original, self, *args, **kwargs))
            kind = "train" if method in ("fit", "train_on_batch") else "test"
            execution = (
                hooks.running_eagerly(self)
                if self.run_eagerly
                else hooks.following_workers(self, kind)
            )
            with running_method(method), execution:
                return original(self, *args, **kwargs)

        return run_method

    trainer = keras_private.TensorFlowTrainer
    get_own_strategy = trainer.distribute_strategy.fget

    def get_strategy(self: Any) -> Any:
        return (
            tf.distribute.get_strategy() if is_strategy_disabled(self) else get_own_strategy(self)
        )

    trainer.distribute_strategy = property(get_strategy)
    _wrap(trainer, "make_train_function", make("train"))
    _wrap(trainer, "make_test_function", make("test"))
    _wrap(trainer, "_maybe_symbolic_build", build)
    for method in ("fit", "evaluate", "train_on_batch", "test_on_batch"):
        _wrap(trainer, method, run(method))


def _bind_arguments(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Mapping[str, Any]:
    """Return a call's arguments by name; empty if they do not fit, since the call will raise."""
    try:
        return inspect.signature(function).bind(*args, **kwargs).arguments
    except TypeError:
        return {}


def _patch_embedding() -> None:
    def call(original: Any, self: Any, inputs: Any) -> Any:
        rows = look_up_rows(self, inputs)
        return original(self, inputs) if rows is None else rows

    _wrap(keras.layers.Embedding, "call", call)


def _patch_normalization() -> None:
    def moments(original: Any, self: Any, inputs: Any, mask: Any) -> Any:
        step = current_step()
        if step is not None:
            step.on_normalization(self, uses_whole_batch=mask is None)
        return original(self, inputs, mask)

    _wrap(keras.layers.BatchNormalization, "_moments", moments)


def _patch_prediction(hooks: TrainerHooks) -> None:
    def predict(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _uses_tfps_strategy(hooks, self):
            return original(self, *args, **kwargs)
        names = ("x", "batch_size", "verbose", "steps", "callbacks")
        options = {**dict(zip(names, args, strict=False)), **kwargs}
        return hooks.predict(self, original, options.pop("x"), options)

    def predict_on_batch(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _uses_tfps_strategy(hooks, self):
            return original(self, *args, **kwargs)
        with hooks.predicting_on_chief(self):
            return original(self, *args, **kwargs)

    _wrap(keras_private.TensorFlowTrainer, "predict", predict)
    _wrap(keras_private.TensorFlowTrainer, "predict_on_batch", predict_on_batch)


def _patch_saving(hooks: TrainerHooks) -> None:
    def access(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        with hooks.accessing_weights(self):
            return original(self, *args, **kwargs)

    def write(original: Any, self: Any, key: str, value: Any) -> None:
        if not is_large(value) or self.mode == "r":
            original(self, key, value)
            return
        if not self._h5_entry_initialized:
            self._create_h5_group(self._h5_entry_path)
        keras_file.write_dataset(self._h5_entry_group, key, value)

    def save_variables(original: Any, self: Any, store: Any) -> None:
        if not isinstance(store, keras_private.H5IOStore):
            original(self, store)
            return
        for position, variable in enumerate(self.variables):  # as in Keras, except large ones
            store[str(position)] = variable if is_large(variable) else variable.numpy()

    for method in ("save", "save_weights"):
        _wrap(keras.Model, method, access)
    for method in ("get_weights", "set_weights"):
        _wrap(keras.layers.Layer, method, access)
    _wrap(keras_private.H5IOStore, "__setitem__", write)
    _wrap(keras_private.BaseOptimizer, "save_own_variables", save_variables)


def _patch_loading(hooks: TrainerHooks) -> None:
    def load_weights(original: Any, self: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        with hooks.accessing_weights(self):
            if not _uses_tfps_strategy(hooks, self) or not any(map(is_large, self.variables)):
                return original(self, filepath, *args, **kwargs)
            with keras_file.mark_loading(), keras_file.extract_weights(filepath) as path:
                return original(self, path, *args, **kwargs)

    def load_model(original: Any, *args: Any, **kwargs: Any) -> Any:
        is_tfps_strategy = hooks.is_tfps_strategy(tf.distribute.get_strategy())
        with keras_file.mark_loading() if is_tfps_strategy else contextlib.nullcontext():
            return original(*args, **kwargs)

    def read(original: Any, self: Any, key: str) -> Any:
        dataset = keras_private.get_h5_dataset(self, key)
        if keras_file.should_read_in_blocks(dataset):
            return keras_file.StoredVariable(dataset)
        return original(self, key)

    def fits_into_memory(original: Any, model: Any) -> bool:
        return not any(map(is_large, model.variables)) and bool(original(model))

    def assign(original: Any, self: Any, value: Any) -> Any:
        if isinstance(value, keras_file.StoredVariable):
            if keras_file.write_to_variable(self, value):
                return value
            value = np.asarray(value)
        return original(self, value)

    _wrap(keras.Model, "load_weights", load_weights)
    _wrap(keras_private.saving_lib, "load_model", load_model)
    _wrap(keras_private.saving_lib, "is_memory_sufficient", fits_into_memory)  # also on saving
    _wrap(keras_private.H5IOStore, "__getitem__", read)
    _wrap(keras_private.Variable.__mro__[1], "assign", assign)


def _patch_epoch_iterator(hooks: TrainerHooks) -> None:
    original = keras_private.trainer_module.TFEpochIterator

    def make(*args: Any, **options: Any) -> Any:
        strategy = options.get("distribute_strategy", args[0] if args else None)
        if args or not hooks.is_tfps_strategy(strategy):
            return original(*args, **options)
        options.pop("distribute_strategy")
        return hooks.create_epoch_iterator(strategy, options)

    keras_private.trainer_module.TFEpochIterator = make


def _patch_callbacks(hooks: TrainerHooks) -> None:
    def initialize(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        model = kwargs.get("model")
        if model is not None and _uses_tfps_strategy(hooks, model):
            hooks.adopt_callbacks(model, self)

    def run_callback_hook(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        call = functools.partial(original, self, *args, **kwargs)
        if self._model is None or not _uses_tfps_strategy(hooks, self._model):
            call()
        else:
            hooks.run_callback_hook(self._model, self, call)

    _wrap(keras_private.CallbackList, "__init__", initialize)
    for name in [name for name in vars(keras_private.CallbackList) if name.startswith("on_")]:
        _wrap(keras_private.CallbackList, name, run_callback_hook)
    for kind in ("train", "test"):
        _patch_begin(hooks, kind)


def _patch_begin(hooks: TrainerHooks, kind: str) -> None:
    def begin(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        model = self._model
        if model is not None and _uses_tfps_strategy(hooks, model):
            hooks.begin(model, self, kind)
        original(self, *args, **kwargs)

    _wrap(keras_private.CallbackList, f"on_{kind}_begin", begin)


def filter_traceback_lines(function: Filtered) -> Filtered:
    """Return a function whose tracebacks hide lines of libraries, unless Keras shows them all."""
    if PACKAGE_FOLDER not in keras_private.traceback_utils._EXCLUDED_PATHS:
        keras_private.traceback_utils._EXCLUDED_PATHS += (PACKAGE_FOLDER,)
    return cast("Filtered", keras_private.traceback_utils.filter_traceback(function))


def _patch_tracebacks() -> None:
    """Hide lines of tfps in tracebacks in which Keras hides its own."""
    trainer = keras_private.TensorFlowTrainer
    for method in PUBLIC_METHODS:
        setattr(trainer, method, filter_traceback_lines(trainer.__dict__[method]))
