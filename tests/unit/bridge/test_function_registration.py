"""Functions are registered as before, and meanwhile the process lives on."""

from __future__ import annotations

import gc
import logging
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tfps.bridge.functions import function_registration as registration
from tfps.bridge.tensorflow_private import current_context

LET_GO_AFTER_S = 0.2


@pytest.fixture(autouse=True)
def _registers_without_lock() -> None:
    registration.patch_function_registration()


def test_functions_run() -> None:
    @tf.function
    def power(x: tf.Tensor, n: int) -> tf.Tensor:
        return tf.ones_like(x) if n == 0 else x * power(x, n - 1)

    assert float(power(tf.constant(2.0), 5)) == 32.0


def test_an_error_shows_where_the_operation_was_made() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None])])
    def fold(x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x, [2, 3])

    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        fold(tf.zeros([7]))
    assert Path(__file__).name in str(error.value)


def test_a_saved_model_brings_its_functions(tmp_path: Path) -> None:
    module = tf.Module()
    module.double = tf.function(lambda x: 2.0 * x, input_signature=[tf.TensorSpec([])])
    tf.saved_model.save(module, str(tmp_path))
    assert float(tf.saved_model.load(str(tmp_path)).double(4.0)) == 8.0


def test_refusals_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = registration.load_runtime_functions()._replace(
        code=lambda _status: tf.errors.INVALID_ARGUMENT, message=lambda _status: b"is wrong"
    )
    monkeypatch.setattr(registration, "load_runtime_functions", lambda: fake)
    with pytest.raises(tf.errors.InvalidArgumentError, match="is wrong"):
        tf.function(lambda: tf.constant(3))()


class SlowTasks:
    """Registrations wait for an answer; a while after the first one began, something happens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replied = threading.Event()
        self.after_a_while: Callable[[], None] = self.replied.set
        real = registration.load_runtime_functions()

        def add_function(*arguments: Any) -> None:
            threading.Timer(LET_GO_AFTER_S, self.after_a_while).start()
            assert self.replied.wait(timeout=30)
            real.add_function(*arguments)

        fake = real._replace(add_function=add_function)
        monkeypatch.setattr(registration, "load_runtime_functions", lambda: fake)
        monkeypatch.setattr(registration, "WARN_AFTER_S", LET_GO_AFTER_S / 4)


def test_other_threads_run_while_one_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    SlowTasks(monkeypatch)
    with caplog.at_level(logging.WARNING, logger="tfps"):
        assert int(tf.function(lambda: tf.constant(3))()) == 3
    assert "SIGCONT" in caplog.text


def test_the_wait_can_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = SlowTasks(monkeypatch)
    main = threading.main_thread().ident
    assert main is not None
    tasks.after_a_while = lambda: signal.pthread_kill(main, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        tf.function(lambda: tf.constant(3))()
    tasks.replied.set()


def test_functions_are_removed_when_no_task_has_to_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    registration.patch_function_removal()
    registration.remove_collected_functions()
    context = current_context()

    def collect(value: float) -> bytes:
        function = tf.function(lambda: tf.constant(value)).get_concrete_function()
        name = function.name
        del function
        gc.collect()
        return tf.compat.as_bytes(name)

    alone = collect(1.0)
    assert not context.has_function(alone)
    cluster = tf.train.ClusterSpec({"chief": ["a:1"], "worker": ["b:1"]}).as_cluster_def()
    on_a_cluster = tf.train.ServerDef(cluster=cluster, job_name="chief")
    monkeypatch.setattr(context, "_server_def", on_a_cluster)
    held = collect(2.0)
    assert held.decode() in registration.take_collected_functions()
    assert registration.take_collected_functions() == []
    assert context.has_function(held)
    registration.remove_collected_functions()
    assert not context.has_function(held)
