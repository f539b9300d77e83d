"""Workers that add up gradients are killed and stopped at any moment: each ticket counts once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.recovery.example_sums import BATCH, SharesOfOneVisit, SummingJob
from tfps.errors import CheckpointError
from tfps.launch import LocalCluster
from tfps.runtime.worker.fit_mirrored import MirroredStep
from tfps.transport.carrier import Message, ServerCall

pytestmark = pytest.mark.timeout(1800)

EXAMPLES = 202  # an odd number of batches: the last round has one
COMES_BACK_S = 300.0
LOOK_EVERY_S = 0.005
# An epoch takes about half a second, so it may end, and the next one begin, within this time.
LONGEST_PAUSE_S = 0.8
LONGEST_STOP_S = 8.0  # a worker that does not reply for three seconds is evicted


class Disturber(threading.Thread):
    """Disturbs workers while `fit` runs, each time when all of them work."""

    def __init__(self, job: SummingJob, *actions: Callable[[], None]) -> None:
        super().__init__(name="disturber", daemon=True)
        self.job, self._actions = job, actions
        self.done = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            for action in self._actions:
                self._wait_until_all_work()
                action()
                self.done += 1
            self._wait_until_all_work()
        except Exception as error:  # noqa: BLE001 - raised again by `check`
            self.error = error

    def check(self) -> None:
        """Check that all actions were done."""
        self.join()
        if self.error is not None:
            raise self.error
        assert self.done == len(self._actions)

    def _wait_until_all_work(self) -> None:
        steps = self.job.worker_steps()
        wait_for(lambda: all(a > b for a, b in zip(self.job.worker_steps(), steps, strict=True)))


def wait_for(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + COMES_BACK_S
    while not condition():
        if time.monotonic() > until_s:
            raise TimeoutError(f"waited for {COMES_BACK_S:g} s")
        time.sleep(LOOK_EVERY_S)


class UntilDisturbed(SharesOfOneVisit):
    """Ends `fit` after the epoch in which the disturber is done."""

    def __init__(self, job: SummingJob, disturber: Disturber) -> None:
        super().__init__(job)
        self.disturber = disturber

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        self.model.stop_training = not self.disturber.is_alive()


def train_while(job: SummingJob, *actions: Callable[[], None]) -> None:
    """Train until all actions are done; then all workers have the same copies as the servers."""
    disturber = Disturber(job, *actions)
    until = UntilDisturbed(job, disturber)
    disturber.start()
    epochs = job.fit(until, epochs=100_000)
    disturber.check()
    assert until.wrong_epochs == {}
    assert job.strategy.stats().examples_seen == epochs * job.examples
    assert job.strategy.stats().rounds_repeated > 0
    assert sum(job.worker_steps()) == epochs * job.examples // BATCH
    job.assert_copies_are_home()
    job.strategy.close()


class HeldPushes:
    """Holds worker 1 within a push, while there is a file ``armed``; it writes ``reached`` then.

    Args:
        folder: the folder of the files.
        before: the servers that get the push before; others get it after.
    """

    def __init__(self, folder: Path, before: Sequence[int]) -> None:
        self.armed, self.reached = folder / "armed", folder / "reached"
        self._before = before
        self._carrier: Any = None
        self._worker: Any = None
        self.name = ""

    def send(self, step: MirroredStep, send_push: Callable[[], Any]) -> Any:
        """Trace a push of a step."""
        self._carrier, self._worker = step.carrier, step.closure_run.worker
        step.carrier, self.name = self, step.carrier.name
        try:
            return send_push()
        finally:
            step.carrier = self._carrier

    def exchange(self, calls: Mapping[int, ServerCall]) -> dict[int, Message]:
        """Send some of the requests, and the others when the worker is not held."""
        first = {server: calls[server] for server in self._before}
        replies = self._carrier.exchange(first) if first else {}
        sent = [reply.header for reply in replies.values()] or [
            call.request.header for call in calls.values()
        ]
        others = {}
        with tf.control_dependencies([self._hold(sent)]):
            for server in calls.keys() - first.keys():
                request = calls[server].request
                request = request._replace(header=tf.identity(request.header))
                others[server] = calls[server]._replace(request=request)
        replies |= self._carrier.exchange(others)
        return {server: replies[server] for server in calls}

    def _hold(self, sent: Sequence[tf.Tensor]) -> tf.Tensor:
        def hold() -> tf.Tensor:
            with tf.control_dependencies([tf.io.write_file(str(self.reached), "")]):
                (end,) = tf.while_loop(self._is_armed, lambda n: (n + 1,), (tf.constant(0),))
            return end

        with tf.control_dependencies(sent):
            is_armed = self._is_armed(tf.identity(self._worker))
        holds = tf.logical_and(self._worker == 1, is_armed)
        return tf.cond(holds, hold, lambda: tf.constant(0))

    def _is_armed(self, number: tf.Tensor) -> tf.Tensor:
        # TensorFlow looks for the files of a constant pattern once, when it prepares the graph.
        nothing = tf.strings.substr(tf.strings.as_string(number), 0, 0)
        return tf.size(tf.io.matching_files(tf.strings.join([str(self.armed), nothing]))) > 0


@pytest.mark.slow
@pytest.mark.parametrize("before", [(), (0,), (1,)])
def test_killed_between_reduction_and_push(
    tasks: Callable[..., LocalCluster],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: Sequence[int],
) -> None:
    """The other one has its gradient in the sums, and uses them only if server 0 has its push."""
    held, send_push = HeldPushes(tmp_path, before), MirroredStep.send_push

    def send_held(step: MirroredStep, *arguments: Any) -> Any:
        return held.send(step, lambda: send_push(step, *arguments))

    monkeypatch.setattr(MirroredStep, "send_push", send_held)
    job = SummingJob(tasks(workers=2, ps=2), examples=EXAMPLES)

    def kill() -> None:
        held.armed.touch()
        wait_for(held.reached.exists)
        job.cluster.kill("worker", 1)
        held.armed.unlink()
        job.cluster.restart("worker", 1)

    train_while(job, kill)
    assert held.reached.exists()


@pytest.mark.slow
def test_weights_are_at_home_after_an_error_of_the_input(
    tasks: Callable[..., LocalCluster],
) -> None:
    job = SummingJob(tasks(workers=2, ps=2), examples=EXAMPLES)
    inputs = job.inputs.copy()
    inputs[EXAMPLES - BATCH, 0] = -1.0

    def share(context: tf.distribute.InputContext) -> tf.data.Dataset:
        def check(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.control_dependencies([tf.debugging.assert_non_negative(x[:, 0])]):
                return tf.identity(x), y

        batches = tf.data.Dataset.from_tensor_slices((inputs, job.labels)).batch(BATCH)
        own = batches.shard(context.num_input_pipelines, context.input_pipeline_id)
        return own.map(check)

    with pytest.raises(tf.errors.InvalidArgumentError, match="x >= 0 did not hold"):
        job.model.fit(share, epochs=1, verbose=0)
    updates = job.updates()
    assert updates > EXAMPLES // BATCH // 4
    assert float(np.sum(job.layer.sums.numpy())) == updates
    job.strategy.close()


class KillAll(keras.callbacks.Callback):
    """Kills both workers in the middle of an epoch, and starts them again unless they stay away."""

    def __init__(self, job: SummingJob, *, stay_away: bool = False) -> None:
        super().__init__()
        self.job = job
        self._starter = threading.Thread(target=(lambda: None) if stay_away else self.restart)

    def restart(self) -> None:
        for worker in range(2):
            self.job.cluster.restart("worker", worker)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        steps = self.job.examples // BATCH
        if 0.1 * steps < batch < 0.6 * steps and self._starter.ident is None:
            for worker in range(2):
                self.job.cluster.kill("worker", worker)
            self._starter.start()

    def wait(self) -> None:
        self._starter.join()


@pytest.mark.slow
def test_all_are_lost(tasks: Callable[..., LocalCluster], tmp_path: Path) -> None:
    job = SummingJob(tasks(workers=2, ps=2), examples=2002, batch_callbacks="sampled")
    tfps.CheckpointManager(job.model, tmp_path).save(background=False)
    killer = KillAll(job)
    with pytest.raises(CheckpointError, match=f"checkpoint 1, the newest one in {tmp_path}"):
        job.fit(killer, epochs=20)
    killer.wait()
    job.strategy.close()


@pytest.mark.slow
def test_all_stay_away(tasks: Callable[..., LocalCluster], tmp_path: Path) -> None:
    """The chief waits for them until a deadline; its checkpoint restores what they have lost."""
    job = SummingJob(
        tasks(workers=2, ps=2),
        examples=2002,
        batch_callbacks="sampled",
        fault_tolerance=tfps.FaultTolerance(no_worker_timeout_s=2),
    )
    manager = tfps.CheckpointManager(job.model, tmp_path)
    manager.save(background=False)
    killer = KillAll(job, stay_away=True)
    newest = f"checkpoint 1, the newest one in {tmp_path}"
    with pytest.raises(CheckpointError, match=newest) as caught:
        job.fit(killer, epochs=20)
    assert "for 2 s (no_worker_timeout_s)" in caught.value.__notes__[0]
    killer.restart()
    wait_for(lambda: {*job.strategy.tasks.values()} == {"alive"})
    manager.restore_latest()
    assert job.fit(epochs=1) == 1
    assert job.visits.counts() == [1] * job.examples
    # From zero in the checkpoint each round has added shares that add up to one.
    rounds = int(job.model.optimizer.iterations.numpy())
    assert job.layer.sums.numpy().sum() == pytest.approx(rounds)
    job.strategy.close()


def _kill(job: SummingJob, seed: int) -> None:
    draws = random.Random(seed)
    worker = draws.randrange(2)
    time.sleep(draws.uniform(0.0, LONGEST_PAUSE_S))
    job.cluster.kill("worker", worker)
    job.cluster.restart("worker", worker)


def _stop(job: SummingJob, seed: int) -> None:
    draws = random.Random(seed)
    worker = draws.randrange(2)
    time.sleep(draws.uniform(0.0, LONGEST_PAUSE_S))
    job.cluster.suspend("worker", worker)
    time.sleep(draws.uniform(0.0, LONGEST_STOP_S))
    job.cluster.resume("worker", worker)


@pytest.mark.parametrize(
    ("kills", "stops"),
    [
        pytest.param(2, 1, marks=pytest.mark.slow),
        pytest.param(30, 10, marks=[pytest.mark.repeats, pytest.mark.timeout(3600)]),
    ],
)
def test_killed_and_stopped_at_random(
    tasks: Callable[..., LocalCluster], kills: int, stops: int
) -> None:
    job = SummingJob(tasks(workers=2, ps=2), examples=EXAMPLES)
    actions = [_kill] * kills + [_stop] * stops
    random.Random(0).shuffle(actions)
    disturbances = [
        lambda action=action, seed=seed: action(job, seed) for seed, action in enumerate(actions)
    ]
    train_while(job, *disturbances)
