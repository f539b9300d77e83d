"""Patches `tf.random` to draw with the seeds of a traced step, not of a worker's process."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private

raw = tf.raw_ops
LARGEST_SEED = 2**31 - 1  # the largest seed that XLA accepts
STRIDE = 1_000_003  # between the two seeds that TensorFlow gives each operation

# The stateful operation -> its stateless version, called with a seed and the same arguments.
STATELESS: dict[str, Callable[..., Any]] = {
    "random_standard_normal": lambda seed, shape, dtype: raw.StatelessRandomNormal(
        shape=shape, seed=seed, dtype=dtype
    ),
    "truncated_normal": lambda seed, shape, dtype: raw.StatelessTruncatedNormal(
        shape=shape, seed=seed, dtype=dtype
    ),
    "random_uniform": lambda seed, shape, dtype: raw.StatelessRandomUniform(
        shape=shape, seed=seed, dtype=dtype
    ),
    "random_uniform_int": lambda seed, shape, low, high: raw.StatelessRandomUniformInt(
        shape=shape, seed=seed, minval=low, maxval=high
    ),
    "parameterized_truncated_normal": lambda seed, shape, means, deviations, low, high: (
        tf.random.stateless_parameterized_truncated_normal(
            shape, seed, means=means, stddevs=deviations, minvals=low, maxvals=high
        )
    ),
    "random_gamma": lambda seed, shape, alpha: raw.StatelessRandomGammaV2(
        shape=tf.concat([shape, tf.shape(alpha, tf.as_dtype(shape.dtype))], 0),
        seed=seed,
        alpha=alpha,
    ),
    "random_poisson_v2": lambda seed, shape, rate, dtype: raw.StatelessRandomPoisson(
        shape=tf.concat([shape, tf.shape(rate, tf.as_dtype(shape.dtype))], 0),
        seed=seed,
        lam=rate,
        dtype=dtype,
    ),
    "random_shuffle": lambda seed, value: tf.random.experimental.stateless_shuffle(value, seed),
    "multinomial": lambda seed, logits, num_samples, output_dtype: raw.StatelessMultinomial(
        logits=logits, num_samples=num_samples, seed=seed, output_dtype=output_dtype
    ),
}
# Operations without a version that takes its seed as a tensor: each process chooses its own seed.
SAMPLERS = (
    "uniform_candidate_sampler",
    "log_uniform_candidate_sampler",
    "learned_unigram_candidate_sampler",
    "fixed_unigram_candidate_sampler",
    "all_candidate_sampler",
)


def patch_random_ops(current_trace: Callable[[], Any]) -> None:
    """Patch `tf.random` to draw with a step's seeds, if it has any, while the step is traced.

    Draws for which the user sets no seed stay different in each process.

    Args:
        current_trace: returns the trace under way, or None; see `StepTrace.draw_seed`.
    """
    for name, stateless in STATELESS.items():
        _patch_operation(private.RANDOM_OPS, name, stateless, current_trace)
    for name in SAMPLERS:
        _patch_operation(private.SAMPLING_OPS, name, None, current_trace)


def _patch_operation(
    module: ModuleType,
    name: str,
    stateless: Callable[..., Any] | None,
    current_trace: Callable[[], Any],
) -> None:
    original = getattr(module, name)

    def draw(
        *args: Any, seed: int | None = 0, seed2: int | None = 0, name: Any = None, **kwargs: Any
    ) -> Any:
        trace = current_trace()
        step_seed = trace.draw_seed() if trace is not None and (seed or seed2) else None
        if step_seed is None:
            return original(*args, seed=seed, seed2=seed2, name=name, **kwargs)
        if stateless is None:
            return original(*args, seed=0, seed2=0, name=name, **kwargs)
        mixed = step_seed + tf.constant([(seed or 0) + STRIDE * (seed2 or 0), 0], tf.int64)
        return stateless(tf.cast(mixed % LARGEST_SEED, tf.int32), *args, **kwargs)

    setattr(module, name, draw)
