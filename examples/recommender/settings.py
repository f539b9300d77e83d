"""The settings in a job file of this example, besides those of every job file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

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

NUMBERS, CATEGORIES = 13, 26  # features of an example, as in Criteo's data
# The numbers of values of Criteo's display advertising data (Kaggle, 2014), of which the five
# largest are made smaller so that all have 20 million rows together.
TABLE_ROWS = (
    *(1_460, 583, 5_931_000, 1_288_704, 305, 24, 12_517, 633, 3, 93_145, 5_683, 4_889_000, 3_194),
    *(27, 14_992, 3_197_000, 10, 5_652, 2_173, 4, 4_125_000, 18, 15, 286_181, 105, 142_572),
)


class DlrmSizes(Section):
    """``[model.dlrm]``: the sizes of the model."""

    embedding_width: Count = 16
    bottom_units: Counts = (64, 32)
    top_units: Counts = (64, 32)


class RecommenderSection(ModelSection):
    """``[model]``: which model, with its sizes in a table of its name."""

    model_config = Section.model_config

    name: Literal["dlrm"] = "dlrm"
    dlrm: DlrmSizes = DlrmSizes()


class ClickLogSection(Section):
    """``[data.click_log]``: how large the planted log is, and how its ids are spread.

    With ``data.path`` it does not count.
    """

    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    exponent: Annotated[float, Field(gt=1)] = 1.5
    examples_per_epoch: Count = 524_288
    validation_examples: Count = 65_536
    test_examples: Count = 131_072
    # What a run has to reach; the best possible is what recommender.best_auc computes.
    target_auc: Annotated[float, Field(ge=0.5, lt=1)] | None = None


class ClicksSection(DataSection):
    """``[data]``: where the examples come from, and how many rows the tables of categories have."""

    model_config = Section.model_config

    source: Literal["auto", "click_log", "criteo", "tfrecord", "parquet"] = "auto"
    batch_size: Count = 1024
    table_rows: Annotated[
        tuple[Count, ...], Field(strict=False, min_length=CATEGORIES, max_length=CATEGORIES)
    ] = TABLE_ROWS
    # No table has more rows than that: for a first look, and for tests.
    max_table_rows: Count | None = None
    validation_fraction: Fraction = 0.05  # of files, as is the next one
    test_fraction: Fraction = 0.05
    click_log: ClickLogSection = ClickLogSection()

    def rows(self) -> tuple[int, ...]:
        """Return how many rows each table has."""
        most = self.max_table_rows
        return tuple(rows if most is None else min(rows, most) for rows in self.table_rows)


class RecommenderTraining(TrainingSection):
    """``[training]``, with the defaults of this example."""

    epochs: Count = 6
    learning_rate: Annotated[float, Field(gt=0)] = 0.003
    learning_rate_schedule: Literal["constant", "cosine"] = "constant"
    sparse_updates: bool = True
    saved: Literal["keras", "checkpoint"] = "checkpoint"
    output: Text = "runs/recommender"


class RecommenderJob(JobConfig):
    """A job that learns who clicks."""

    model: RecommenderSection = RecommenderSection()
    data: ClicksSection = ClicksSection()
    training: RecommenderTraining = RecommenderTraining()

    @classmethod
    def contradictions(cls, values: Mapping[str, Any]) -> list[str]:
        """Return a message for each pair of settings that contradict each other."""
        data = get_section(values, "data")
        source, path = data.get("source", "auto"), data.get("path")
        problems = []
        if path is not None and source == "click_log":
            problems.append(
                f"data.path: received {format_value(path)} with data.source = 'click_log', which "
                "reads no file; remove one of the two"
            )
        if path is None and source in ("criteo", "tfrecord", "parquet"):
            problems.append(
                f"data.source: received {format_value(source)} without data.path; set data.path to "
                "a file, a folder or a pattern such as 'day_*.gz'"
            )
        return problems


JOB = RecommenderJob
