"""What Keras's trainer asks of us, at the places that `keras_patches` replaces."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import tensorflow as tf


class TrainerHooks(Protocol):
    """What the training layer does in the place of Keras's trainer."""

    def is_ours(self, strategy: object) -> bool:
        """Whether a strategy is one of ours."""

    def make_function(self, model: Any, kind: str, force: bool) -> None:
        """Set ``model.train_function`` or ``model.test_function``."""

    def build(self, model: Any, iterator: Any, data_batch: Any) -> None:
        """Build the model's variables from what is known of a batch."""

    def epoch_iterator(self, strategy: tf.distribute.Strategy, options: dict[str, Any]) -> Any:
        """The iterator of one `fit` or `evaluate`."""

    def predict(self, model: Any, original: Any, x: Any, options: dict[str, Any]) -> Any:
        """`model.predict`, with Keras's own as the last resort."""

    def predicting(self, model: Any) -> contextlib.AbstractContextManager[None]:
        """While it is open, Keras predicts on the chief with the weights of the servers."""

    def eagerly(self, model: Any) -> contextlib.AbstractContextManager[None]:
        """While it is open, Keras runs the steps of a model with ``run_eagerly`` on the chief."""

    def following(self, model: Any, kind: str) -> contextlib.AbstractContextManager[None]:
        """While it is open, Keras's loop follows the workers; an error in it ends their round."""

    def accessing(self, layer: Any) -> contextlib.AbstractContextManager[None]:
        """While it is open, weights of a layer or a model are read, written or saved together."""

    def call_hooks(self, model: Any, callbacks: Any, call: functools.partial[None]) -> None:
        """Call one hook of all callbacks of a list: ``call`` does, for those that it has then."""

    def check_arguments(self, model: Any, method: str, arguments: Mapping[str, Any]) -> None:
        """A model of our strategy is about to train or to be evaluated."""

    def check_stranger(self, model: Any, method: str) -> None:
        """A model that is not of our strategy is about to train or to be evaluated."""

    def adopt_callbacks(self, model: Any, callbacks: Any) -> None:
        """Look through a `CallbackList` that was just made."""

    def begin(self, model: Any, callbacks: Any, kind: str) -> None:
        """``model.train_function`` or ``model.test_function`` is about to run with callbacks."""

    def building(self, optimizer: Any, variables: Any) -> contextlib.AbstractContextManager[None]:
        """While it is open, an optimizer makes its slots."""

    def apply_outside_step(self, optimizer: Any, gradients: Any, variables: Any) -> bool:
        """An optimizer call in a scheduled function; False leaves it to Keras."""
