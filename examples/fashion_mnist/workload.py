"""Fashion-MNIST as a job trains it: which images, which model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fashion_mnist import data
from fashion_mnist.settings import FashionMnistJob
from tfps.job.image_classification import ImageClassification


class FashionMnistWorkload(ImageClassification):
    """The reference job: images of clothes into ten classes."""

    @property
    def classes(self) -> Sequence[str]:
        """The names of the ten classes."""
        return self._models.CLASSES

    def title(self, config: FashionMnistJob) -> str:
        """Return a readable name of the training."""
        return f"{config.model.name.upper()} on {self._models.TITLE}"

    def check_data(self, config: FashionMnistJob) -> str:
        """Read the files that are on this machine; say what `load` would use."""
        return data.check(source=config.data.source, path=config.data.path)

    def load_images(self, config: FashionMnistJob, *, say: Callable[[str], None]) -> Any:
        """Return the images and their labels, as arrays."""
        return data.load(source=config.data.source, path=config.data.path, say=say)

    def build(self, config: FashionMnistJob) -> Any:
        """Return the model that the job file names, not compiled."""
        return self._models.build(config.model.name, **config.model.sizes())

    @property
    def _models(self) -> Any:
        from fashion_mnist import model  # imports Keras, and what checks a job file needs none

        return model


WORKLOAD = FashionMnistWorkload()
