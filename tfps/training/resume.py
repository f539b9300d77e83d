"""`tfps.callbacks.Resume`: `fit` goes on where another process has stopped."""

from __future__ import annotations

import math
import os
import random
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

import keras
import numpy as np

from tfps.bridge.keras_private import begin_at_epoch, io_utils
from tfps.checkpoint.callback import Checkpoint, find_wrong_counts
from tfps.checkpoint.manager import CheckpointManager
from tfps.checkpoint.names import named_variables
from tfps.checkpoint.retention import KeepLatest
from tfps.errors import CheckpointError, CheckpointNotSaved, ConfigError, UnsupportedError, refuse
from tfps.folder import hold_folder
from tfps.training.callback_states import CallbackStates
from tfps.training.epoch_runner import EpochRunner
from tfps.training.fit_strategy import FitStrategy
from tfps.training.input.epoch_iterator import EpochProgress, PassPosition, TicketIterator
from tfps.training.input.order_seed import OrderSeed
from tfps.units import format_bytes

DEFAULT_S = 30.0
LARGEST_SHARE = 0.02  # of the time that training waits for saves
LARGEST_FILE_SHARE = 0.1  # of the time in which files are written beside training


class Resume(Checkpoint):
    """Saves checkpoints during `fit`, from which the same call goes on in another process.

    Use it as a callback of `fit`, and run the same script again after it was stopped, by whatever
    means. If the folder has a good checkpoint, `fit` restores it and goes on at the step where it
    was taken: the epoch uses each remaining example once, also with another number of workers or
    servers, and its metrics are those of a run that never stopped. The returned `History` has all
    epochs. A run that had ended returns it at once. Use one folder for each call of `fit`.

    The state of Keras's callbacks goes on as well, and that of others with ``get_state()`` and
    ``set_state(state)``. Arrays, `tf.data` datasets and `PyDataset` go on at the step; the epoch
    begins anew with generators, dataset functions, `tfps.ShardedDataset`, and datasets that must
    be read on the chief and shuffle without a seed.

    Ctrl-C and SIGTERM save at once, and then end `fit` as usual; a second signal, or 25 s after
    SIGTERM, end it without a save. Handlers that a program has set itself stay. A parameter server
    that gets SIGTERM ends after a save.

    A save takes a snapshot as `tfps.CheckpointManager` does, in the background. If it fails,
    training goes on and it is tried again, as with `tfps.callbacks.Checkpoint`.

    Args:
        folder: the folder for the checkpoints; None: that of `tfps.FaultTolerance(checkpoints=)`,
            which must be the same if both are given.
        every_steps: the steps from one checkpoint to the next.
        every_s: the seconds from one checkpoint to the next, instead. If neither is given, 30, or
            more where training would wait for saves for more than 2 % of the time, or where files
            would be written for more than 10 % of it.
        keep: the number of checkpoints to keep, at least 1.

    Raises:
        ConfigError: arguments are invalid; names every mistake. Also when `fit` begins, if there
            is no folder, or if it cannot be used.
        CheckpointError: when `fit` begins, if the folder has checkpoints of another model, or of
            a newer version of tfps.

    Example:

    >>> import keras, numpy as np, tfps
    >>> with tfps.testing.InProcessCluster() as cluster:
    ...     strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
    ...     with strategy.scope():
    ...         model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    ...         model.compile("sgd", "mse")
    ...     resume = tfps.callbacks.Resume("checkpoints", every_steps=500)
    ...     x, y = np.ones((8, 4), "float32"), np.ones(8, "float32")
    ...     history = model.fit(x, y, epochs=3, verbose=0, callbacks=[resume])
    ...     history.epoch
    [0, 1, 2]
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        every_steps: int | None = None,
        every_s: float | None = None,
        keep: int = 2,
    ) -> None:
        keras.callbacks.Callback.__init__(self)
        _check(every_steps, every_s, keep)
        self._folder, self._keep = folder, keep
        self._steps_between = every_steps
        self._every_s = (DEFAULT_S if every_s is None else every_s) if every_steps is None else None
        self._is_adaptive = every_steps is None and every_s is None
        self._is_open = False  # whether a `fit` of ours has begun
        self._saved: dict[str, Any] = {}  # the state to go on from, until the first epoch begins
        self.order_seed: OrderSeed | None = None

    def open(self, model: Any, strategy: FitStrategy, *, initial_epoch: int) -> None:
        """Find the newest good checkpoint, before `fit` makes its input.

        Args:
            model: the model that is trained.
            strategy: its strategy.
            initial_epoch: the first epoch, without a checkpoint.
        """
        if model.run_eagerly:
            raise UnsupportedError(
                "tfps.callbacks.Resume: received a model with run_eagerly=True, whose steps run in "
                "this process alone; compile it without run_eagerly"
            )
        if self._is_open:
            self._manager.wait()
        folder = _choose_folder(self._folder, strategy.fault_tolerance.checkpoints)
        manager = CheckpointManager(model, folder, keep=KeepLatest(self._keep))
        hold_folder(manager.directory, name="folder")
        needed_bytes = sum(strategy.runtime.plan.bytes_per_server)
        if (free_bytes := shutil.disk_usage(manager.directory).free) < needed_bytes:
            raise ConfigError(
                f"folder: received {folder}, where {format_bytes(free_bytes)} are free, expected "
                f"at least the {format_bytes(needed_bytes)} of a checkpoint; free some, or choose "
                "a folder on another disk"
            )
        self._begin(manager, None, self._steps_between)
        self._is_open, self._shown_folder = True, os.fspath(folder)
        self._recovers = strategy.fault_tolerance.checkpoints is not None
        self._epoch = self._first_epoch = initial_epoch
        self._begun_steps = 0  # before the epoch
        self._stop_at, self._saved_at, self._saved_s = 1, 0, time.monotonic()
        self._ended: Any = None  # the request of the epoch that has ended last
        self._is_over = False
        numbers = [manifest.number for manifest in manager.checkpoints]
        newest = manager.newest_of(numbers) if numbers else None
        self._saved = {} if newest is None else manager.read_state(newest)
        seed = self._saved.get("order")
        self.order_seed = OrderSeed.choose() if seed is None else OrderSeed(*seed)
        self._random = self._saved.get("random", {}).get("first") or _get_random_states()
        _set_random_states(self._random)

    def use_input(self, iterator: TicketIterator) -> None:
        """Use the input that `fit` has made."""
        self._input = iterator

    def restore(self, callbacks: Sequence[Any]) -> None:
        """Restore the checkpoint into the model, which is built now.

        Args:
            callbacks: the others of `fit`.
        """
        self._states = CallbackStates(callbacks)
        manifest = self._manager.restore_latest()
        self._manager.on_rest = self._collect
        if manifest is None:
            return
        saved: dict[str, Any] = {"epoch": manifest.epoch or 0, "total_steps": manifest.step or 0}
        saved = self._saved = self._manager.read_state(manifest) or saved | {"step": 0}
        if reason := saved["step"] and self._input.source.begins_anew:
            saved["step"], saved["metrics"] = 0, []
            reason = f"; the epoch begins anew, since {reason}"
        self._epoch = saved["epoch"]
        self._begun_steps = saved["total_steps"] - saved["step"]
        self._steps = self._saved_at = saved["total_steps"]
        self._states.prepare(saved.get("callbacks", {}))
        where = f"goes on with epoch {self._epoch + 1}, after {saved['step']} of its steps"
        if saved.get("is_over") or self._epoch >= self.params["epochs"]:
            where, reason = f"the run had ended after {self._epoch} epochs", ""
        path = os.path.join(self._shown_folder, self._manager.directory_of(manifest.number).name)
        io_utils.print_msg(f"Resume: {path}: {where}{reason or ''}")

    @property
    def steps_to_save(self) -> int | None:
        """The number of steps until the next save, or until the time is looked at again."""
        if self._every_s is None:
            return super().steps_to_save
        return max(1, self._stop_at - self._steps)

    def _is_due(self, before: int) -> bool:
        if self._every_s is None:
            return super()._is_due(before)
        if self._steps < self._stop_at:
            return False
        now_s = time.monotonic()
        is_due = now_s - self._saved_s >= self._every_s
        taken, seconds = self._steps - self._saved_at, max(1e-3, now_s - self._saved_s)
        left_s = self._every_s if is_due else self._every_s - seconds
        # Until the rate is known the time is looked at after twice as many steps each time.
        self._stop_at = self._steps + max(1, min(int(taken / seconds * left_s), 2 * taken))
        if is_due:
            self._saved_at, self._saved_s = self._steps, now_s
        return is_due

    def on_train_begin(self, logs: Any = None) -> None:
        if not self._is_open:
            raise UnsupportedError(
                "tfps.callbacks.Resume: received a model without a tfps.ParameterServerStrategy, "
                "expected one that was created in strategy.scope()"
            )
        self._states.begin(self._saved.get("callbacks", {}))
        if self._saved:
            is_over = self._saved.get("is_over")
            begin_at_epoch(self.model, self.params["epochs"] if is_over else self._epoch)
        elif self._recovers:  # a server may be lost early
            self._raise_and_count(lambda: self._save(logs))

    def begin_input(self) -> EpochProgress:
        """Return how far the epoch had come that begins now, and let the input go on there."""
        saved, self._saved = self._saved, {}
        if "pass" not in saved or self._input.source.begins_anew:
            return EpochProgress()
        self._input.go_on_at(
            PassPosition(*saved["pass"]), epochs=saved["epoch"] - saved["first_epoch"]
        )
        _set_random_states(saved["random"]["now"])
        return EpochProgress(saved["step"])

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_begin(epoch, logs)
        begin_at_epoch(self.model, None)
        if not self._saved:
            return
        self._batch = self._saved["step"] - 1
        named = named_variables(self.model, optimizer=False)
        for name, value in self._saved.get("seeds", {}).items():
            named[name].assign(value)
        if self._batch < 0:
            return
        known, saved = self.model.metrics_variables, self._saved["metrics"]
        if len(known) != len(saved):
            raise CheckpointError(
                f"{self._manager.directory}: received a checkpoint with {len(saved)} variables of "
                f"metrics, expected {len(known)}; compile the model with the same metrics"
            )
        for variable, value in zip(known, saved, strict=True):
            variable.assign(value)
        if (rate := self._find_rate()) is not None:
            rate.assign(self._saved["rate"])  # a schedule may have gone on when the epoch began

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._begun_steps += self._read_progress().steps
        self._steps, self._ended = self._begun_steps, self._input.request
        super().on_epoch_end(epoch, logs)

    def on_train_end(self, logs: Any = None) -> None:
        is_new = not self._saved  # else the run had ended before
        self._is_over = bool(self.model.stop_training)
        begin_at_epoch(self.model, None)
        self._raise_and_count(self._manager.wait)
        if is_new:
            self._raise_and_count(lambda: self._save(logs))
        super().on_train_end(logs)
        self.model._distribute_strategy.run_state.stop_request.save_and_end()
        self._manager.on_rest = dict

    def _save(self, logs: Any, *, background: bool = True) -> None:
        super()._save(logs, background=background)
        if self._is_adaptive:
            pause_s, took_s = self._manager.last_pause_s or 0.0, self._manager.last_seconds or 0.0
            self._every_s = max(DEFAULT_S, pause_s / LARGEST_SHARE, took_s / LARGEST_FILE_SHARE)

    def save_now(self, ends: bool) -> None:
        """Save before a signal ends `fit` or a server, and say how it goes on.

        Args:
            ends: whether `fit` ends.
        """
        steps = self._read_progress().steps
        self._steps = self._begun_steps + steps
        try:
            self._manager.wait()
            self._save(None, background=False)
        except CheckpointNotSaved as error:
            io_utils.print_msg(f"Resume: the steps since the last checkpoint are lost: {error}")
        else:
            where = f"epoch {self._epoch + 1}, after {steps} of its steps"
            then = "; the same command goes on there" if ends else ", for a server that ends"
            io_utils.print_msg(f"Resume: saved in {where}{then}")

    def _collect(self) -> Mapping[str, Any]:
        """Return the state to save, while no worker takes part."""
        if self._saved:
            return self._saved  # nothing was trained yet
        request = self._input.request
        is_new = request is None or request is self._ended  # the next epoch has not begun
        progress = self._read_progress()
        position = self._input.next_position if request is None or is_new else request.position
        metrics = {id(variable): value for variable, value in progress.metrics}
        seeds = {id(variable): value for variable, value in progress.seeds}
        named = named_variables(self.model, optimizer=False)
        return {
            "epoch": self._epoch,
            "step": progress.steps,
            "total_steps": self._begun_steps + progress.steps,
            "first_epoch": self._first_epoch,
            "is_over": self._is_over,
            "rate": None if (rate := self._find_rate()) is None else float(rate.numpy()),
            "order": None if self.order_seed is None else list(astuple(self.order_seed)),
            "pass": list(position),
            "metrics": [metrics.get(id(v), v.numpy()) for v in self.model.metrics_variables],
            "seeds": {name: seeds[id(v)] for name, v in named.items() if id(v) in seeds},
            "random": {"first": self._random, "now": _get_random_states()},
            "callbacks": self._states.read(),
        }

    def _read_progress(self) -> EpochProgress:
        request, runner = self._input.request, self.model.train_function
        if request is None or request is self._ended or not isinstance(runner, EpochRunner):
            return EpochProgress()
        return runner.read_progress(request)

    def _find_rate(self) -> Any:
        """Return the variable of the learning rate; None if it has none, or follows a schedule."""
        rate = getattr(self.model.optimizer, "learning_rate", None)
        return rate if isinstance(rate, keras.Variable) else None


def find_resume(callbacks: Any) -> Resume | None:
    """Return the callback among those that `fit` received, if there is one.

    Raises:
        ConfigError: there are several.
    """
    given = getattr(callbacks, "callbacks", callbacks)
    given = given if isinstance(given, (list, tuple)) else [given]
    found = [each for each in given if isinstance(each, Resume)]
    if len(found) > 1:
        raise ConfigError(
            f"callbacks: received {len(found)} tfps.callbacks.Resume, expected one; remove the "
            "others"
        )
    return found[0] if found else None


def _choose_folder(folder: Any, recovery: Any) -> Any:
    if folder is None and recovery is None:
        raise ConfigError(
            "folder: received None, expected the folder of the checkpoints; give it to "
            "tfps.callbacks.Resume, or to the strategy as tfps.FaultTolerance(checkpoints=folder)"
        )
    if folder is None or recovery is None:
        return recovery if folder is None else folder
    if os.path.realpath(folder) != os.path.realpath(recovery):
        raise ConfigError(
            f"folder: received {os.fspath(folder)!r}, and {os.fspath(recovery)!r} in "
            "tfps.FaultTolerance(checkpoints=...), expected the same folder; leave one of them out"
        )
    return folder


def _check(every_steps: Any, every_s: Any, keep: Any) -> None:
    problems: list[str] = []
    if every_steps is not None and every_s is not None:
        problems.append("every_steps, every_s: received both, expected one; remove the other")
    problems += find_wrong_counts(every_steps=every_steps, keep=keep)
    is_number = isinstance(every_s, (int, float)) and not isinstance(every_s, bool)
    if every_s is not None and not (is_number and 0 < every_s < math.inf):
        problems.append(f"every_s: received {every_s!r}, expected a number of seconds above 0")
    refuse(problems, source="tfps.callbacks.Resume")


def _get_random_states() -> dict[str, Any]:
    """Return the states of Python's and NumPy's generators."""
    version, words, gauss = random.getstate()
    kind, keys, *rest = np.random.get_state(legacy=True)
    python = [version, np.array(words, np.uint32), gauss]
    return {"python": python, "numpy": [kind, np.array(keys), *rest]}


def _set_random_states(states: Mapping[str, Any]) -> None:
    version, words, gauss = states["python"]
    random.setstate((version, tuple(map(int, words)), gauss))
    np.random.set_state(tuple(states["numpy"]))
