"""The AUC that no model can exceed, from the planted probabilities themselves.

    cd examples
    python -m recommender.best_auc recommender --set data.click_log.seed=1

Of two examples, one clicked and one not, a ranking by the true probability names the right one as
often as any ranking can: that share is the AUC of the best possible model. It is computed here from
the probabilities of the test examples, over all pairs, so that no label's chance is in it.
"""

from __future__ import annotations

import click
import numpy as np
import tensorflow as tf

from recommender.click_log import ClickLog
from recommender.planted_inputs import TEST, log_of
from tfps.cli.job_arguments import add_job_arguments
from tfps.config import load
from tfps.config.bundle import config_path

PART = 16_384  # examples at once


def auc_of_probabilities(probabilities: np.ndarray) -> float:
    """Return the expected AUC of ranking examples by their own probabilities.

    Args:
        probabilities: with which each example is positive.

    Example:

    >>> auc_of_probabilities(np.array([0.0, 1.0, 1.0])), auc_of_probabilities(np.full(1000, 0.2))
    (1.0, 0.5)
    """
    values, counts = np.unique(probabilities, return_counts=True)
    positive, negative = values * counts, (1.0 - values) * counts
    below = np.cumsum(negative) - negative
    right = np.sum(positive * (below + negative / 2))
    return float(right / (positive.sum() * negative.sum()))


def best_auc(log: ClickLog, *, examples: int) -> float:
    """Return the best possible AUC on a log's test examples.

    Args:
        log: that plants the clicks.
        examples: how many of them.
    """
    parts = [
        log.probabilities(TEST + tf.range(first, min(first + PART, examples), dtype=tf.int64))
        for first in range(0, examples, PART)
    ]
    return auc_of_probabilities(np.concatenate([part.numpy() for part in parts]))


@click.command()
@add_job_arguments
def main(config: str | None, overrides: tuple[str, ...]) -> None:
    """Print the best possible AUC on the test examples of the job that CONFIG describes."""
    data = load(config_path(config or "recommender"), overrides).data
    best = best_auc(log_of(data), examples=data.click_log.test_examples)
    click.echo(f"{best:.4f} on {data.click_log.test_examples:,} test examples")


if __name__ == "__main__":
    main()
