"""The interface through which Keras's trainer, patched in `keras_patches`, calls tfps."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import tensorflow as tf


class TrainerHooks(Protocol):
    """The functions of the training layer that replace or extend those of Keras's trainer."""

    def is_tfps_strategy(self, strategy: object) -> bool:
        """Return whether a strategy is a `ParameterServerStrategy` of tfps."""

    def make_function(self, model: Any, kind: str, force: bool) -> None:
        """Set ``model.train_function`` or ``model.test_function`` if it is not set, or by force."""

    def build(self, model: Any, iterator: Any, data_batch: Any) -> None:
        """Build the model's variables from the known shapes and dtypes of a batch."""

    def create_epoch_iterator(
        self, strategy: tf.distribute.Strategy, options: dict[str, Any]
    ) -> Any:
        """Create the iterator of one `fit` or `evaluate`."""

    def predict(self, model: Any, original: Any, x: Any, options: dict[str, Any]) -> Any:
        """Run `model.predict`, with Keras's own method as the fallback."""

    def predicting_on_chief(self, model: Any) -> contextlib.AbstractContextManager[None]:
        """Let Keras predict on the chief with the servers' weights while the context is open."""

    def running_eagerly(self, model: Any) -> contextlib.AbstractContextManager[None]:
        """Run the steps of a ``run_eagerly`` model on the chief while the context is open."""

    def following_workers(self, model: Any, kind: str) -> contextlib.AbstractContextManager[None]:
        """Let Keras's loop follow the workers; an error in the context ends their ticket run."""

    def accessing_weights(self, layer: Any) -> contextlib.AbstractContextManager[None]:
        """Return a context in which all weights of a layer or model may be read and written."""

    def run_callback_hook(self, model: Any, callbacks: Any, call: functools.partial[None]) -> None:
        """Run one hook of a `CallbackList`; ``call`` runs it for the list's current callbacks."""

    def check_arguments(self, model: Any, method: str, arguments: Mapping[str, Any]) -> None:
        """Check the arguments with which a model of our strategy will be trained or evaluated."""

    def check_scope(self, model: Any, method: str) -> None:
        """Check a model of another strategy that is about to be trained or evaluated."""

    def adopt_callbacks(self, model: Any, callbacks: Any) -> None:
        """Inspect a `CallbackList` that was just created."""

    def begin(self, model: Any, callbacks: Any, kind: str) -> None:
        """Prepare a run of ``model.train_function`` or ``model.test_function`` with callbacks."""

    def building_optimizer(
        self, optimizer: Any, variables: Any
    ) -> contextlib.AbstractContextManager[None]:
        """Create the slots of an optimizer while the context is open."""

    def apply_outside_step(self, optimizer: Any, gradients: Any, variables: Any) -> bool:
        """Handle an optimizer's call in a scheduled function; return False to leave it to Keras."""
