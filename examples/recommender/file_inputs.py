"""Files as batches, read and parsed on the workers. Imports TensorFlow where it makes them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from recommender.files import files_of, format_of
from recommender.first_lines import first_problems
from recommender.inputs import ShardInputs
from recommender.settings import ClicksSection, RecommenderJob
from tfps.errors import DataError

if TYPE_CHECKING:
    import tensorflow as tf

PARTS = ("training", "validation", "test")
IN_A_ROUND = 100  # batches of which the held-out ones are the last


def checked_files(data: ClicksSection) -> tuple[list[str], str]:
    """Return the files of ``data.path`` and their format.

    Args:
        data: of the job.

    Raises:
        DataError: there is none, or one begins with what cannot be parsed: each by name.
    """
    assert data.path is not None
    files = files_of(data.path)
    kind = format_of(files, data)
    if problems := [text for file in files for text in first_problems(file, kind)]:
        raise DataError("\n".join(problems))
    return files, kind


def file_inputs(config: RecommenderJob) -> ShardInputs:
    """Return the parts of the files.

    Of each hundred batches of a file the last ones are held out for the test, those before them for
    validation, by the fractions of the job file.

    Args:
        config: of the job.

    Raises:
        DataError: what `checked_files` raises, or nothing is left of a part.
    """
    data = config.data
    files, kind = checked_files(data)
    held_out = [round(IN_A_ROUND * part) for part in (data.validation_fraction, data.test_fraction)]
    if not all(held_out) or sum(held_out) >= IN_A_ROUND:
        raise DataError(
            "data.validation_fraction, data.test_fraction: received "
            f"{data.validation_fraction:g} and {data.test_fraction:g}, expected at least 0.01 "
            "each, and a sum below 1"
        )
    ends = (IN_A_ROUND - sum(held_out), IN_A_ROUND - held_out[1], IN_A_ROUND)
    begins = (0, *ends[:-1])
    parts = {
        name: functools.partial(_batches, data=data, files=files, kind=kind, begin=begin, end=end)
        for name, begin, end in zip(PARTS, begins, ends, strict=True)
    }
    rows = data.rows()
    return ShardInputs(
        source=f"{len(files)} {kind} file{'s' if len(files) > 1 else ''} of {data.path}",
        sizes_in_words=(
            f"{begins[1]} % training, {held_out[0]} % validation and {held_out[1]} % test batches; "
            f"{len(rows)} tables of {sum(rows):,} rows"
        ),
        **parts,
        shards=max(len(files), config.cluster.workers),
        steps=None,
    )


def _batches(
    context: tf.distribute.InputContext,
    *,
    data: ClicksSection,
    files: Sequence[str],
    kind: str,
    begin: int,
    end: int,
) -> tf.data.Dataset:
    """Return the batches from one position to another in each round of a file's batches."""
    import tensorflow as tf

    from recommender.features import model_features

    reader = importlib.import_module(f"recommender.{kind}")
    pipelines, own = context.num_input_pipelines, context.input_pipeline_id
    size, rows = data.batch_size, data.rows()
    has_own_files = len(files) >= pipelines

    def of_file(file: tf.Tensor) -> tf.data.Dataset:
        batches = reader.read(file).batch(size).enumerate()
        batches = batches.filter(
            lambda index, _: (index % IN_A_ROUND >= begin) & (index % IN_A_ROUND < end)
        )
        return batches.map(lambda index, raw: (file, index * size, raw))

    def parsed(file: tf.Tensor, first: tf.Tensor, raw: Any) -> Any:
        numbers, categories, labels = reader.parse(file, first, raw)
        return model_features(numbers, categories, rows), labels

    names = tf.data.Dataset.from_tensor_slices(list(files))
    if has_own_files:
        batches = names.shard(pipelines, own).flat_map(of_file)
    else:
        batches = names.flat_map(of_file).shard(pipelines, own)
    return batches.map(parsed).prefetch(2)
