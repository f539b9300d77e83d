"""The residuals that a worker keeps of gradients, by the replies of servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scaled_examples import scaled_examples
from tfps.compression import Codec, Quantize, TopK
from tfps.compression.by_path import CodecChoice
from tfps.compression.memory import EncodedGradient, ErrorFeedback, MemoryState, memory_of
from tfps.consistency.ledger import Status
from tfps.runtime.message.coding import CodedVector
from tfps.runtime.worker.residuals import PushEncoder
from tfps.transport.layout import Layout

ITEMS = 16


@dataclass(frozen=True)
class CountingFeedback(ErrorFeedback):
    """Keeps what is left out, as ever, and how many pushes there were."""

    def specs(self, items: int) -> tuple[tf.TensorSpec, ...]:
        return (*super().specs(items), tf.TensorSpec([], tf.int64))

    def code(
        self, vector: tf.Tensor, kept: MemoryState, *, scale: Any, seed: tf.Tensor
    ) -> EncodedGradient:
        left_out, pushes = kept
        data, after = super().code(vector, (left_out,), scale=scale, seed=seed)
        return EncodedGradient(data, (*after, pushes + 1))


class CountedTopK(TopK):
    """A codec of a user's own with a memory of its own."""

    @property
    def memory(self) -> CountingFeedback:
        return CountingFeedback(self)


CODECS = [TopK(0.1), TopK(0.5), Quantize(1), CountedTopK(0.1)]


class Variable:
    """A worker's variable, in this process."""

    def __init__(self, spec: tf.TensorSpec) -> None:
        self.value = tf.zeros(spec.shape, spec.dtype)

    def read_value(self) -> tf.Tensor:
        return self.value

    def load(self, value: tf.Tensor) -> None:
        self.value = value


class Worker:
    """Pushes the gradients of one variable to one server.

    Args:
        codec: of the gradients.
    """

    def __init__(self, codec: Codec) -> None:
        layout = Layout.from_entries([("gradient of kernel", "float32", (ITEMS,))])
        self.coded = CodedVector(CodecChoice(codec, "all"), layout, layout)
        self.variables = tuple(map(Variable, memory_of(codec).specs(ITEMS)))
        self.kept, *_ = self.variables  # what is still to be sent
        self.applied = np.zeros([ITEMS])  # by the server

    def for_gradients(self, coded: CodedVector) -> Any:
        return self.variables

    def push(self, gradient: np.ndarray, status: Status, *, scale: float | None = None) -> None:
        coding = PushEncoder(
            self,  # type: ignore[arg-type]
            seed=tf.constant([0, 0], tf.int64),
            scale=scale,
        )
        vector = tf.constant(gradient * (scale or 1.0), tf.float32)
        arrived = self.coded.decode(coding.encode(0, self.coded, vector)).numpy()
        coding.commit_residuals([tf.constant(int(status), tf.int64)])
        if status is Status.OK and np.isfinite(arrived).all():
            self.applied += arrived / (scale or 1.0)


statuses = st.sampled_from([Status.OK, Status.OK, Status.LATE, Status.DUPLICATE, Status.EVICTED])


@settings(max_examples=scaled_examples(40))
@given(
    codec=st.sampled_from(CODECS),
    pushes=st.lists(st.tuples(statuses, st.sampled_from([1.0, 2.0, 0.5])), max_size=8),
    seed=st.integers(0, 1000),
)
def test_sent_and_kept_and_dropped_are_what_was_computed(
    codec: Codec, pushes: list[tuple[Status, float]], seed: int
) -> None:
    worker, random = Worker(codec), np.random.default_rng(seed)
    computed, dropped = np.zeros([ITEMS]), np.zeros([ITEMS])
    for status, scale in pushes:
        gradient, before = random.normal(size=ITEMS), worker.kept.value.numpy()
        worker.push(gradient, status, scale=scale)
        if status is Status.DUPLICATE:  # an earlier push of the same ticket counts
            np.testing.assert_array_equal(worker.kept.value, before)
            continue
        computed += gradient
        if status is not Status.OK:
            dropped += gradient + before
            np.testing.assert_array_equal(worker.kept.value, np.zeros([ITEMS]))
    kept = worker.kept.value.numpy()
    np.testing.assert_allclose(worker.applied + kept + dropped, computed, atol=1e-4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_what_is_not_finite_arrives_and_leaves_what_is_kept(codec: Codec, value: float) -> None:
    worker, gradient = Worker(codec), np.linspace(-1, 1, ITEMS)
    worker.push(gradient, Status.OK)
    before, applied = worker.kept.value.numpy(), worker.applied.copy()
    broken = gradient.copy()
    broken[5] = value
    worker.push(broken, Status.OK)
    np.testing.assert_array_equal(worker.kept.value, before)
    np.testing.assert_array_equal(worker.applied, applied)  # it arrived, and a server skips it
    worker.push(gradient, Status.OK)
    total = worker.applied + worker.kept.value.numpy()
    np.testing.assert_allclose(total, 2 * gradient, atol=1e-5)
