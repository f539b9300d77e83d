"""A workload that classifies images: arrays in memory, accuracy, and a confusion matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfps.job.array_inputs import ArrayInputs, split_off_validation
from tfps.job.workload import Draw

EVALUATION_BATCH = 512  # examples; larger than a training batch, since there are no gradients


class ImageClassification(ABC):
    """A workload of images and labels that fit into memory; examples add the data and the models.

    Models return logits. It implements `tfps.job.workload.Workload`.
    """

    metric = "accuracy"

    @property
    @abstractmethod
    def classes(self) -> Sequence[str]:
        """The names of the classes, by label."""

    @abstractmethod
    def title(self, config: Any) -> str:
        """Return a title that names what is trained."""

    @abstractmethod
    def check_data(self, config: Any) -> str:
        """Check the data on this machine; return a text about what `load_images` would use."""

    @abstractmethod
    def load_images(self, config: Any, *, say: Callable[[str], None]) -> Any:
        """Return ``x_train``, ``y_train``, ``x_test``, ``y_test``, ``source`` and ``notice``.

        Args:
            config: the job's configuration.
            say: receives messages for the user.
        """

    @abstractmethod
    def build(self, config: Any) -> Any:
        """Return the model, not compiled; called in the scope of a strategy."""

    def load(self, config: Any, *, say: Callable[[str], None]) -> ArrayInputs:
        """Load the images, and hold out those for validation."""
        data = self.load_images(config, say=say)
        if data.notice:
            say(data.notice)
        return split_off_validation(data, validation_fraction=config.data.validation_fraction)

    def compile_arguments(self) -> Mapping[str, Any]:
        """Return the loss and the metrics: cross entropy and accuracy."""
        import keras

        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return {"loss": loss, "metrics": ["accuracy"]}

    def test(self, model: Any, inputs: ArrayInputs) -> Mapping[str, Any]:
        """Return test accuracy, test loss and confusion matrix (true by predicted class)."""
        import numpy as np

        results = model.evaluate(
            inputs.x_test, inputs.y_test, batch_size=EVALUATION_BATCH, verbose=0, return_dict=True
        )
        logits = model.predict(inputs.x_test, batch_size=EVALUATION_BATCH, verbose=0)
        classes = logits.shape[1]
        pairs = inputs.y_test.astype(np.int64) * classes + logits.argmax(axis=1)
        matrix = np.bincount(pairs, minlength=classes**2).reshape(classes, classes)
        return {
            "test_accuracy": float(results["accuracy"]),
            "test_loss": float(results["loss"]),
            "classes": self.classes,
            "confusion_matrix": matrix.tolist(),
        }

    def reached(self, result: Mapping[str, Any]) -> str:
        """Return a text with the share of test images that are classified correctly."""
        images = sum(map(sum, result["confusion_matrix"]))
        return f"{result['test_accuracy']:.1%} of {images:,} test images correct"

    def last_line(self, result: Mapping[str, Any]) -> str:
        """Return a text with the accuracy and the loss."""
        return f"Test accuracy {result['test_accuracy']:.4f} (loss {result['test_loss']:.4f})"

    @property
    def pictures(self) -> Mapping[str, Draw]:
        """The further pictures: none beside the curves and the staleness."""
        return {}
