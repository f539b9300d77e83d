"""`tfps.CheckpointManager`: saves a model in the background and restores it anywhere."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfps.checkpoint.background_save import BackgroundSave
from tfps.checkpoint.commit import Folder
from tfps.checkpoint.counters import read_counters
from tfps.checkpoint.fallback import restore_newest_undamaged
from tfps.checkpoint.file_error import translate_write_errors
from tfps.checkpoint.manifest import Manifest
from tfps.checkpoint.model_snapshot import ModelSnapshot
from tfps.checkpoint.next_start import record_search
from tfps.checkpoint.restore import restore_model
from tfps.checkpoint.retention import KeepLatest, RetentionPolicy
from tfps.checkpoint.saved_state import read_state, split_state
from tfps.checkpoint.servers import build_optimizer, strategy_of
from tfps.checkpoint.shared_folder import SharedFolder
from tfps.checkpoint.snapshot import take_drained
from tfps.errors import ConfigError
from tfps.package_versions import package_versions


class CheckpointManager:
    """Saves and restores checkpoints of a model: weights, the optimizer's state, seeds, counters.

    Use it instead of `tf.train.CheckpointManager`, alone or with `tfps.callbacks.Checkpoint`, to
    continue a training after it has ended or crashed. The parameter servers write at the same time,
    each its own variables, while training continues. The files fit any number of servers, any
    partitioner, and a plain Keras model without a strategy. A checkpoint counts when it is
    complete: a crash at any moment leaves the last one.

    To save, the workers finish their steps and wait until the servers have noted the values, which
    takes them no time. The first update after that copies what it changes, so while a checkpoint is
    written a server may need its memory twice. If a server does not see the folder, its values come
    to the chief in blocks of at most 64 MiB.

    A manager made for the folder of `tfps.FaultTolerance(checkpoints=folder)` is found by the
    strategy, which fills a lost server from its checkpoints.

    One process saves into a folder at a time; others may read it meanwhile. Metric states are not
    kept without `tfps.callbacks.Resume`, nor values on workers or per worker (slots under
    `LocalSteps`, memories of `tfps.optimizers`, the residuals of codecs): these begin anew.

    Source: Eisenman et al., "Check-N-Run: a Checkpointing System for Training Deep Learning
    Recommendation Models", NSDI 2022, for the decoupling of the snapshot and the write.

    Args:
        model: a Keras model, made under a `tfps.ParameterServerStrategy` or not.
        directory: the folder of the checkpoints, on this machine or mounted there.
        keep: the checkpoints to keep, a policy of `tfps.checkpoint`; the newest stays in any case.
            One that was found damaged stays as well, and does not count.
        shared: whether the servers see the directory; None finds out. If it is True and a server
            does not, saving and restoring raise a `ConfigError`.

    Raises:
        ConfigError: arguments that cannot work; names every mistake.

    Example:

    >>> import keras, numpy as np
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> manager = CheckpointManager(model, "checkpoints")
    >>> path = manager.save(epoch=1, metrics={"loss": 0.5})
    >>> manager.wait()
    >>> manager.restore_latest().epoch
    1
    """

    def __init__(
        self,
        model: keras.Model,
        directory: str | os.PathLike[str],
        *,
        keep: RetentionPolicy | None = None,
        shared: bool | None = None,
    ) -> None:
        self._folder = _check_arguments(model, directory, keep=keep, shared=shared)
        self.model, self.is_shared = model, shared
        self.outlives_servers = False  # whether a lost server ends only the save
        # Called with the manifest of a new checkpoint, while its variables are at rest.
        self.on_snapshot: Callable[[Manifest], None] = lambda _: None
        # Called before that, when the workers are at rest; returns the state to save.
        self.on_rest: Callable[[], Mapping[str, Any]] = dict
        self.of_this_job: set[int] = set()  # what was saved or restored here
        self._keep: RetentionPolicy = KeepLatest() if keep is None else keep
        self._background_save: BackgroundSave | None = None
        self._shared = SharedFolder(self._folder, shared)
        self._snapshot = ModelSnapshot(model, self._shared)
        self._last_number = 0
        self._last_seconds: float | None = None
        self.last_pause_s: float | None = None
        if (strategy := strategy_of(model)) is not None:
            strategy.runtime.checkpoint_folder = self.directory
            strategy.runtime.on_checkpoint_manager(self)

    @property
    def directory(self) -> Path:
        """The folder that contains a subfolder for each checkpoint."""
        return self._folder.path

    @property
    def last_seconds(self) -> float | None:
        """The duration in seconds of the latest successful save, until its commit.

        ``last_pause_s`` is the time for which the workers were drained for the latest save. Both
        are None before the first.
        """
        if self._background_save is not None and self._background_save.seconds is not None:
            self._last_seconds = self._background_save.seconds
        return self._last_seconds

    @property
    def checkpoints(self) -> list[Manifest]:
        """The manifests of the committed checkpoints, the oldest first."""
        return [self._folder.manifest(number) for number in self._folder.numbers()]

    @property
    def latest(self) -> Manifest | None:
        """The manifest of the newest checkpoint, or None."""
        numbers = self._folder.numbers()
        return self._folder.manifest(numbers[-1]) if numbers else None

    def directory_of(self, number: int) -> Path:
        """Return the folder of a checkpoint, which need not exist.

        Args:
            number: the number of the checkpoint.
        """
        return self._folder.checkpoint_path(number)

    def newest_of_this_job(self) -> Manifest | None:
        """Return the manifest of the newest checkpoint that this object has saved or restored.

        Checkpoints of earlier jobs in the same folder do not count. Returns None if there is none.

        Raises:
            CheckpointDamaged: all are damaged, with the reason of each.
        """
        numbers = sorted(self.of_this_job.intersection(self._folder.numbers()))
        if not numbers:
            return None
        return self.newest_of(numbers)

    def newest_of(self, numbers: Sequence[int]) -> Manifest:
        """Return the manifest of the newest undamaged checkpoint among some.

        Args:
            numbers: the numbers of checkpoints that exist, at least one.

        Raises:
            CheckpointDamaged: all are damaged, with the reason of each.
        """
        manifest, passed_over = restore_newest_undamaged(
            numbers, self._read_verified, source=str(self.directory)
        )
        self._folder.exclude_damaged(passed_over)
        return manifest

    def read_state(self, manifest: Manifest) -> dict[str, Any]:
        """Return the state that was saved with a checkpoint; empty if there is none.

        Args:
            manifest: the manifest of the checkpoint.
        """
        return read_state(manifest.state, self.directory_of(manifest.number))

    def _read_verified(self, number: int) -> Manifest:
        manifest = self._folder.manifest(number)
        self._folder.verify(manifest)
        return manifest

    def save(
        self,
        *,
        epoch: int | None = None,
        step: int | None = None,
        metrics: Mapping[str, Any] | None = None,
        background: bool = True,
    ) -> Path:
        """Take a snapshot of the model and write it as a new checkpoint.

        If the previous save has not ended, it waits for that first. Once the checkpoint is
        committed, those that ``keep`` does not keep are deleted.

        Args:
            epoch: the number of completed epochs, from which a restored training continues.
            step: the number of completed steps, likewise.
            metrics: numbers by name, for `KeepBest` and for the reader of the manifest.
            background: return while it is being written; else wait.

        Returns:
            The folder of the checkpoint when it is written.

        Raises:
            CheckpointError: the model is not built.
            CheckpointNotSaved: a file cannot be written; now, or during the save before.
            tf.errors.UnavailableError: a parameter server is lost; now, or during the save before.
        """
        self.wait()
        build_optimizer(self.model)
        with translate_write_errors(self.directory):
            self._last_number = max([self._last_number, *self._folder.numbers()])
            self._folder.clean()
            contents, snapshot = self._snapshot.current()
        strategy = strategy_of(self.model)
        if strategy is not None:
            strategy.runtime.dependents.add(self)
        counters = None
        began_s = time.monotonic()
        try:
            all_cells, state = take_drained(snapshot, strategy, on_rest=self.on_rest)
            values, arrays = split_state(state)
        except BaseException:
            snapshot.free(waits=False)  # on servers that reply: Ctrl-C ends the wait for others
            raise
        self.last_pause_s = time.monotonic() - began_s
        if strategy is not None:
            counters = read_counters(strategy.runtime.ticket_server.layout, all_cells)
        self._last_number += 1
        manifest = Manifest(
            number=self._last_number,
            saved_at_s=time.time(),
            epoch=state.get("epoch", epoch),  # at rest; hooks may come later
            step=state.get("total_steps", step),
            metrics=_to_floats(metrics or {}),
            consistency=None if strategy is None else str(strategy.runtime.mode),
            counters=counters,
            package_versions=package_versions(["tensorflow", "keras", "numpy"]),
            tensors=contents.tensors,
            state=values,
        )
        self.of_this_job.add(manifest.number)
        self.on_snapshot(manifest)
        self._background_save = BackgroundSave(
            snapshot, manifest, arrays=arrays, folder=self._folder, keep=self._keep
        )
        if not background:
            self.wait()
        return self._folder.checkpoint_path(self._last_number)

    def wait(self) -> None:
        """Wait until the current save is committed.

        Raises:
            tf.errors.UnavailableError: a parameter server was lost meanwhile.
            CheckpointNotSaved: a file could not be written; once.
            Exception: any other error of the save; once.
        """
        saving = self._background_save
        if saving is not None:
            try:
                saving.wait()
                self._last_seconds = saving.seconds
            except tf.errors.UnavailableError:  # the save has logged it
                if not self.outlives_servers:
                    raise
            finally:
                self._background_save = None

    def close(self) -> None:
        """Close the channels to the servers, when the current save has ended.

        The strategy calls this when it is closed.
        """
        if self._background_save is not None:
            self._background_save.join()
        self._snapshot.close()

    @property
    def is_saving(self) -> bool:
        """Whether a save is running, or has ended without `wait` or `check`."""
        return self._background_save is not None

    def check(self) -> None:
        """Raise the error of a save in the background, if it has failed; does not wait."""
        if self._background_save is not None and self._background_save.is_done:
            self.wait()

    def restore_latest(self, *, weights_only: bool = False) -> Manifest | None:
        """Restore the newest undamaged checkpoint into the model, if the folder has one.

        Use it at the start of a script, before `fit`. A damaged checkpoint is skipped with a
        warning, and the one before is restored.

        Args:
            weights_only: leave the optimizer and the counters as they are.

        Returns:
            The manifest of the restored checkpoint, whose ``epoch`` is the number of completed
            epochs; None if there is no checkpoint.

        Raises:
            CheckpointDamaged: all are damaged, with the reason of each.
            Exception: other errors of `restore`.
        """
        self.wait()
        record_search(self)
        numbers = self._folder.numbers()
        if not numbers:
            return None
        manifest, passed_over = restore_newest_undamaged(
            numbers, partial(self.restore, weights_only=weights_only), source=str(self.directory)
        )
        self._folder.exclude_damaged(passed_over)
        return manifest

    def restore(self, number: int, *, weights_only: bool = False) -> Manifest:
        """Restore a checkpoint into the model, and the counters of its strategy's `stats()`.

        The optimizer's state is made first if nothing was trained yet, so this can be called right
        after `compile`. A model without an optimizer takes the weights alone.

        Args:
            number: the number of the checkpoint.
            weights_only: leave the optimizer and the counters as they are.

        Returns:
            The manifest, which has the epoch.

        Raises:
            CheckpointError: there is no such checkpoint, the model is not built, or the checkpoint
                does not fit it: with every name and shape that differs, and nothing restored.
            CheckpointDamaged: its files have changed. Sizes, indices and the manifest are compared
                before anything is restored, but values when they are read. So part of the model may
                have been restored, and must not be used.
            tf.errors.UnavailableError: a parameter server is lost.
        """
        self.wait()
        manifest = self._read_verified(number)
        self.of_this_job.add(number)
        restore_model(self.model, manifest, shared=self._shared, weights_only=weights_only)
        return manifest


def _check_arguments(model: Any, directory: Any, *, keep: Any, shared: Any) -> Folder:
    problems = []
    if not hasattr(model, "trainable_variables") or not hasattr(model, "built"):
        problems.append(f"model: received {model!r}, expected a Keras model")
    if keep is not None and not isinstance(keep, RetentionPolicy):
        problems.append(f"keep: received {keep!r}, expected a policy such as KeepLatest(3)")
    if shared not in (None, True, False):
        problems.append(f"shared: received {shared!r}, expected True, False or None")
    folder = None
    try:
        folder = Folder(directory)
    except ConfigError as error:
        problems += error.problems
    if problems or folder is None:
        raise ConfigError(problems, source="tfps.CheckpointManager")
    return folder


def _to_floats(metrics: Mapping[str, Any]) -> dict[str, float]:
    numbers = {name: float(value) for name, value in metrics.items()}
    return {name: value for name, value in numbers.items() if math.isfinite(value)}
