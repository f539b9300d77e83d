"""Momentum on the worker: what waits, what goes, and how many numbers in a warm-up."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tfps.compression import DeepGradientCompression
from tfps.compression.codec import most_bytes_of

ITEMS = 40
SEED = tf.constant([0, 1], tf.int64)

codecs = st.builds(
    DeepGradientCompression,
    st.sampled_from([0.02, 0.1, 0.4, 1]),
    st.sampled_from([0, 1, 5]),
    momentum=st.sampled_from([0.0, 0.5, 0.9]),
    clip_norm=st.sampled_from([None, 0.5, 100.0]),
)


class CodedPush(NamedTuple):
    """One of a worker."""

    velocity: np.ndarray  # that was added to what waits
    arrived: np.ndarray
    waiting: np.ndarray
    size_bytes: int


def pushes(codec: DeepGradientCompression, *, number: int, scale: float = 1.0) -> list[CodedPush]:
    """Of random gradients; the velocity by the formula of the paper, in float64."""
    random, memory = np.random.default_rng(7), codec.memory
    kept = tuple(tf.zeros(spec.shape, spec.dtype) for spec in memory.specs(ITEMS))
    velocity, made = np.zeros(ITEMS), []
    for _ in range(number):
        gradient = random.normal(size=ITEMS)
        vector = tf.constant(gradient * scale, tf.float32)
        data, kept = memory.code(vector, kept, scale=scale, seed=SEED)
        if codec.clip_norm is not None:
            gradient *= min(1.0, codec.clip_norm / float(np.linalg.norm(gradient)))
        velocity = codec.momentum * velocity + gradient
        arrived = codec.decode(data, ITEMS).numpy() / scale
        made.append(CodedPush(velocity, arrived, kept[0].numpy(), data.shape[0]))
        velocity = np.where(arrived == 0, velocity, 0)
    return made


@settings(max_examples=40)
@given(codec=codecs, scale=st.sampled_from([1.0, 1024.0]))
def test_what_arrived_and_what_waits_are_all_velocities(
    codec: DeepGradientCompression, scale: float
) -> None:
    made = pushes(codec, number=8, scale=scale)
    arrived, velocities = (sum(getattr(p, n) for p in made) for n in ("arrived", "velocity"))
    np.testing.assert_allclose(arrived + made[-1].waiting, velocities, atol=1e-4)
    for push in made:
        gone = push.arrived != 0
        assert not push.waiting[gone].any()
        assert np.abs(push.arrived[gone]).min() >= np.abs(push.waiting).max() * (1 - 1e-6)


@given(codec=codecs)
def test_a_warm_up_sends_fewer_from_push_to_push(codec: DeepGradientCompression) -> None:
    made = pushes(codec, number=codec.warm_up_steps + 2)
    sizes = [push.size_bytes for push in made]
    assert sizes[0] == most_bytes_of(codec, ITEMS)
    assert all(before >= after for before, after in pairwise(sizes))
    assert sizes[codec.warm_up_steps :] == [codec.size_bytes(ITEMS)] * 2


def test_the_fraction_falls_by_the_same_factor() -> None:
    codec = DeepGradientCompression(0.25 / 256, warm_up_steps=4)
    numbers = [int(codec.chosen(25_600, pushes=tf.constant(n, tf.int64))) for n in range(6)]
    np.testing.assert_allclose(numbers, [6400, 1600, 400, 100, 25, 25], atol=1)


def test_without_momentum_and_with_all_numbers_it_is_the_gradient() -> None:
    (push,) = pushes(DeepGradientCompression(1, momentum=0), number=1)
    np.testing.assert_allclose(push.arrived, push.velocity, atol=1e-6)
    assert not push.waiting.any()
