"""Corrects a worker's stale gradients before the optimizer applies them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

from tfps.optimizers.correction import Correction, ParameterChange
from tfps.optimizers.slabs import SlabStorage
from tfps.optimizers.update_targets import UpdateTarget, UpdateTargets, get_wrapper_slots
from tfps.optimizers.worker_memory import Sender, WorkerMemory
from tfps.optimizers.worker_state import SenderState, WorkerStateMixin
from tfps.optimizers.wrapped import get_wrappers


class WorkerMemories:
    """The tensors that servers store for each worker for one optimizer and its wrappers.

    Args:
        optimizer: the optimizer that the step calls.
        leaf: this optimizer, or one that it wraps.
        targets: the update targets of the leaf.
        workers: the number of workers.
        storage: creates variables on servers.
    """

    def __init__(
        self,
        optimizer: Any,
        leaf: Any,
        targets: UpdateTargets,
        *,
        workers: int,
        storage: SlabStorage,
    ) -> None:
        self.corrections = [
            (number, wrapper)
            for number, wrapper in enumerate(get_wrappers(optimizer, leaf))
            if isinstance(wrapper, Correction)
        ]
        self.sent: WorkerMemory | None = None
        self.own: WorkerMemory | None = None
        if self.corrections:
            self.sent = WorkerMemory(
                targets.get_all(),
                get_value=lambda target: target.variable,
                name=optimizer.name,
                workers=workers,
                storage=storage,
            )
        self._own_slot = leaf.per_worker_slot if isinstance(leaf, WorkerStateMixin) else None
        if self._own_slot is not None and workers > 1:
            self.own = WorkerMemory(
                targets.get_all(),
                get_value=self._get_own_slot,
                name=optimizer.name,
                workers=workers - 1,  # the slot is that of worker 0
                starts_at_zero=True,
                storage=storage,
            )

    @property
    def stores_sent_values(self) -> bool:
        """Whether the values that a worker is sent must be stored."""
        return self.sent is not None

    @property
    def is_empty(self) -> bool:
        return self.sent is None and self.own is None

    def get_sender_state(self, target: UpdateTarget, sender: Sender) -> SenderState | None:
        """Return the tensor that the optimizer stores for a worker and a target, or None."""
        if self.own is None:
            return None
        slot = self._get_own_slot(target)
        return SenderState(self.own, target, slot, sender.worker - 1)

    def _get_own_slot(self, target: UpdateTarget) -> Any:
        assert self._own_slot is not None
        return target.slots[self._own_slot]

    def clear(self) -> None:
        """Set the optimizer's tensors to zero; sent values are replaced when workers enter."""
        if self.own is not None:
            self.own.clear()

    def store_sent_values(self, names: Collection[str], worker: tf.Tensor, *, device: str) -> None:
        """Trace storing the values that a worker is sent (see `WorkerMemory.store_sent_values`)."""
        if self.sent is not None:
            self.sent.store_sent_values(names, worker, device=device)


class GradientCorrector:
    """Corrects the gradients of one push, and passes them to the optimizer.

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
        memories: WorkerMemories,
        targets: Sequence[UpdateTarget],
        sender: Sender,
    ) -> None:
        self._optimizer, self._apply = optimizer, apply
        self._memories, self._targets, self._sender = memories, targets, sender
        optimizer.__dict__["sender_states"] = {
            optimizer._var_key(target.variable): memories.get_sender_state(target, sender)
            for target in targets
        }

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        """Trace the correction and the update; takes the arguments of Keras's `Optimizer.apply`."""
        sent = self._memories.sent
        if sent is None:
            self._apply(list(grads), list(trainable_variables))
            return
        gradients, steps_to_record = self._unscale_and_clip(grads), []
        for i, (target, gradient) in enumerate(zip(self._targets, gradients, strict=True)):
            if target.variable.overwrite_with_gradient:
                continue  # a value, not a gradient
            now = tf.convert_to_tensor(target.variable._value.read_value())
            sent_value = self._read_sent_value(sent, target, now)
            for number, correction in self._memories.corrections:
                change = ParameterChange(
                    now=now,
                    sent=sent_value,
                    slots=get_wrapper_slots(target, number),
                    updates=tf.cast(self._optimizer._iterations.value, tf.float32),
                )
                gradient = correction.correct(gradient, change)
                if correction.needs_steps:
                    steps_to_record.append((correction, target, change))
            gradients[i] = gradient
        self._apply(gradients, list(trainable_variables))
        for correction, target, change in steps_to_record:
            correction.record_step(target.variable._value.read_value() - change.now, change)

    def _unscale_and_clip(self, gradients: Sequence[Any]) -> list[Any]:
        """Unscale and clip gradients before the correction; the optimizer clips no more."""
        optimizer, prepared = self._optimizer, list(gradients)
        own = [i for i, u in enumerate(self._targets) if not u.variable.overwrite_with_gradient]
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

    def _read_sent_value(
        self, memory: WorkerMemory, target: UpdateTarget, now: tf.Tensor
    ) -> tf.Tensor:
        if self._sender.is_worker is True:
            return memory.read(target, self._sender.worker)
        return tf.cond(
            self._sender.is_worker, lambda: memory.read(target, self._sender.worker), lambda: now
        )
