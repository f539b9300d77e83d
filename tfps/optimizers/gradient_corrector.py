"""Corrects a worker's gradients by the values it was sent, before the optimizer applies them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

from tfps.optimizers.correction import Correction, ParameterChange
from tfps.optimizers.slabs import SlabStorage
from tfps.optimizers.update_targets import UpdateTarget, UpdateTargets, slot_of_wrapper
from tfps.optimizers.worker_memory import WorkerAt, WorkerMemory
from tfps.optimizers.worker_state import SenderState, WorkerStateMixin
from tfps.optimizers.wrapped import wrappers_over


class Memories:
    """The tensors that servers store for each worker for one optimizer and its wrappers.

    Args:
        optimizer: the optimizer that the step calls.
        leaf: this optimizer, or one that it wraps.
        targets: the update targets of the leaf.
        workers: the number of workers.
        replies: the number of the server's replies to store for a worker (see `WorkerMemory`).
        storage: creates variables on servers.
    """

    def __init__(
        self,
        optimizer: Any,
        leaf: Any,
        targets: UpdateTargets,
        *,
        workers: int,
        replies: int,
        storage: SlabStorage,
    ) -> None:
        self.corrections = [
            (number, wrapper)
            for number, wrapper in enumerate(wrappers_over(optimizer, leaf))
            if isinstance(wrapper, Correction)
        ]
        self.handed: WorkerMemory | None = None
        self.own: WorkerMemory | None = None
        if self.corrections:
            self.handed = WorkerMemory(
                targets.all(),
                value_of=lambda target: target.variable,
                name=optimizer.name,
                workers=workers,
                replies=replies,
                storage=storage,
            )
        if isinstance(leaf, WorkerStateMixin) and workers > 1:
            self.own = WorkerMemory(
                targets.all(),
                value_of=lambda target: target.slots[leaf.remembered_slot],
                name=optimizer.name,
                workers=workers - 1,  # the slot is that of worker 0
                blank=True,
                storage=storage,
            )

    @property
    def are_handed_out(self) -> bool:
        """Whether the values that a worker is sent must be stored."""
        return self.handed is not None

    @property
    def are_empty(self) -> bool:
        return self.handed is None and self.own is None

    def for_target(self, target: UpdateTarget, sender: WorkerAt) -> SenderState | None:
        """Return the optimizer's own tensor of an update target for a worker, or None."""
        if self.own is None:
            return None
        return SenderState(self.own, target, sender._replace(worker=sender.worker - 1))

    def clear(self) -> None:
        """Reset what updates have written; the sent values are replaced when workers enter."""
        if self.own is not None:
            self.own.clear()

    def hand_out(
        self, names: Collection[str], sender: WorkerAt, *, device: str, is_first: bool
    ) -> None:
        """Trace storing the values that a worker is sent (see `WorkerMemory.hand_out`)."""
        if self.handed is not None:
            self.handed.hand_out(names, sender, device=device, is_first=is_first)


class GradientCorrector:
    """Replaces an optimizer in one push: corrects gradients, then lets the optimizer apply them.

    Args:
        optimizer: a copy that has the update targets of one server only.
        apply: its `apply`, or a compiled version.
        memories: the memories of the optimizer.
        targets: the update targets of the gradients, in their order.
        sender: the worker that computed the gradients.
    """

    def __init__(
        self,
        optimizer: Any,
        *,
        apply: Callable[[list[tf.Tensor], list[Any]], None],
        memories: Memories,
        targets: Sequence[UpdateTarget],
        sender: WorkerAt,
    ) -> None:
        self._optimizer, self._apply = optimizer, apply
        self._memories, self._units, self._sender = memories, targets, sender
        optimizer.__dict__["of_sender"] = {
            optimizer._var_key(target.variable): memories.for_target(target, sender)
            for target in targets
        }

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        """Trace the update; has the parameters of Keras's `apply`."""
        handed = self._memories.handed
        if handed is None:
            self._apply(list(grads), list(trainable_variables))
            return
        gradients, noted = self._prepared(grads), []
        for i, (target, gradient) in enumerate(zip(self._units, gradients, strict=True)):
            if target.variable.overwrite_with_gradient:
                continue  # a value, not a gradient
            now = tf.convert_to_tensor(target.variable._value.read_value())
            then = self._handed(handed, target, now)
            for number, correction in self._memories.corrections:
                moved = ParameterChange(
                    now=now,
                    handed=then,
                    slots=slot_of_wrapper(target, number),
                    updates=tf.cast(self._optimizer._iterations.value, tf.float32),
                )
                gradient = correction.correct(gradient, moved)
                if correction.watches_steps:
                    noted.append((correction, target, moved))
            gradients[i] = gradient
        self._apply(gradients, list(trainable_variables))
        for correction, target, moved in noted:
            correction.note_step(target.variable._value.read_value() - moved.now, moved)

    def _prepared(self, gradients: Sequence[Any]) -> list[Any]:
        """Return unscaled and clipped gradients; corrected ones are not clipped again."""
        optimizer, prepared = self._optimizer, list(gradients)
        own = [i for i, u in enumerate(self._units) if not u.variable.overwrite_with_gradient]
        values = [prepared[i] for i in own]
        if optimizer.loss_scale_factor is not None:
            values = [value / optimizer.loss_scale_factor for value in values]
            optimizer.__dict__["loss_scale_factor"] = None
        if not optimizer.gradient_accumulation_steps:
            values = optimizer._clip_gradients(values)
            for rule in ("clipnorm", "global_clipnorm", "clipvalue"):
                optimizer.__dict__[rule] = None
        for i, value in zip(own, values, strict=True):
            prepared[i] = value
        return prepared

    def _handed(self, memory: WorkerMemory, target: UpdateTarget, now: tf.Tensor) -> tf.Tensor:
        if self._sender.is_worker is True:
            return memory.read(target, self._sender)
        return tf.cond(
            self._sender.is_worker, lambda: memory.read(target, self._sender), lambda: now
        )
