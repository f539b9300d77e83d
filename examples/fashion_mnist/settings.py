"""The settings in a job file of this example, besides those of every job file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tfps.config.mistakes import format_value, get_section
from tfps.config.schema import (
    Count,
    Counts,
    DataSection,
    Fraction,
    JobConfig,
    ModelSection,
    Section,
    Text,
    TrainingSection,
)


class CnnSizes(Section):
    """``[model.cnn]``: the sizes of the convolutional network."""

    filters: Counts = (32, 64)
    kernel_size: Count = 3
    dense_units: Count = 64
    dropout: Fraction = 0.25


class MlpSizes(Section):
    """``[model.mlp]``: the sizes of the multi-layer perceptron."""

    hidden_units: Counts = (256, 128)
    dropout: Fraction = 0.2


class ClassifierSection(ModelSection):
    """``[model]``: which model; each has its sizes in a table of its own name."""

    model_config = Section.model_config

    name: Literal["cnn", "mlp"] = "cnn"
    cnn: CnnSizes = CnnSizes()
    mlp: MlpSizes = MlpSizes()

    def sizes(self) -> dict[str, Any]:
        """Return the sizes of the chosen model."""
        sizes: Section = {"cnn": self.cnn, "mlp": self.mlp}[self.name]
        return sizes.model_dump()


class ImagesSection(DataSection):
    """``[data]``: where the images come from and how they are cut into batches."""

    model_config = Section.model_config

    source: Literal["auto", "tensorflow-datasets", "idx", "subset"] = "auto"
    validation_fraction: Fraction = 0.05


class FashionMnistTraining(TrainingSection):
    """``[training]``, with the output folder of this example."""

    output: Text = "runs/fashion_mnist"


class FashionMnistJob(JobConfig):
    """A job on Fashion-MNIST."""

    model: ClassifierSection = ClassifierSection()
    data: ImagesSection = ImagesSection()
    training: FashionMnistTraining = FashionMnistTraining()

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> list[str]:
        """Return a message for each pair of settings that contradict each other."""
        data = get_section(values, "data")
        if data.get("source") != "subset" or "path" not in data:
            return []
        return [
            f"data.path: received {format_value(data['path'])}, but data.source = 'subset' reads "
            "the files that ship with tfps; remove one of the two"
        ]


JOB = FashionMnistJob
