"""The share of images that an MLP of `tfps.bench.workload` names rightly, in NumPy.

A benchmark looks at a model that goes on training: what it takes of the machine must be little, and
the workers must not be stopped for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def accuracy_of(weights: Sequence[np.ndarray], inputs: np.ndarray, labels: np.ndarray) -> float:
    """Share of the inputs whose largest output is the label's.

    Args:
        weights: kernel, bias, kernel, bias ... of dense layers with ReLU between them.
        inputs: of shape (number, ...); flattened as the model does.
        labels: their classes.
    """
    values = inputs.reshape(len(inputs), -1)
    for kernel, bias in zip(weights[::2], weights[1::2], strict=True):
        if kernel is not weights[0]:
            values = np.maximum(values, 0)
        values = values @ kernel + bias
    return float(np.mean(values.argmax(axis=1) == labels))
