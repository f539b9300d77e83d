"""Runs the update of a Keras optimizer in a server function, on the variables of that server."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.keras_private import LossScaleOptimizer, MultiOptimizer, refuse_slots_in_dictionary
from tfps.consistency.optimizer_limits import together_problem
from tfps.errors import ConfigError
from tfps.optimizers.by_shard import refuse_inexact_server_updates, refuse_inexact_shard_updates
from tfps.optimizers.discount import Discount
from tfps.optimizers.elementwise import (
    apply_compiled,
    clips_on_worker,
    may_be_compiled,
    may_share_slabs,
)
from tfps.optimizers.gathered_rows import gather_rows, to_dense
from tfps.optimizers.in_place import InPlaceStrategy
from tfps.optimizers.loss_scaling import accept_unscaled_gradients
from tfps.optimizers.slabs import SlabStorage
from tfps.optimizers.sparse_updates import SparseUpdates
from tfps.optimizers.staleness_aware import StalenessAware
from tfps.optimizers.state_placement import StatePlacement
from tfps.optimizers.update_targets import UpdateTarget, UpdateTargets
from tfps.optimizers.worker_memory import WorkerMemory
from tfps.optimizers.worker_state import PushStaleness, SenderState, WorkerStateMixin
from tfps.optimizers.wrapped import (
    get_devices,
    get_leaf_optimizers,
    get_nested_optimizers,
    iter_slots,
)
from tfps.optimizers.wrapper import OptimizerWrapper

# A push in one kernel writes old values back instead of using a condition. At 100,000 items this
# saves a server a quarter of its CPU time and a fifth of the context switches, at a million items a
# fifteenth and a seventh.
MAX_MASKED_ITEMS = 1 << 20

# XLA takes a tenth of a second to compile an update, and saves Adam a third of the time on 64,000
# items and half on a million; on 16,000 it saves nothing.
MIN_COMPILED_ITEMS = 1 << 15


@dataclass(frozen=True)
class UpdateContext:
    """The server, the sender and the learning rate of an update.

    Args:
        device: the server whose function is traced.
        staleness: int64 scalar, the number of updates that this server has applied since the
            parameters were read from which the gradients come.
        sender: int64 scalar, the index of the worker that computed the gradients; None for no
            single worker, so that nothing is stale.
        may_be_compiled: whether XLA may compile the update; False inside of compiled code.
        rate: the learning rate, if it was computed before; None for the optimizer's own.
        discounts: the discounts of the wrappers around the optimizer.
        by_rows: whether to update only the rows of the gradients.
        loss_scale: the scale by which the gradients were multiplied and already divided; None for
            the optimizer's.
        workers: int64 scalar, the number of workers that take part.
    """

    device: str
    staleness: tf.Tensor
    sender: tf.Tensor | None = None
    may_be_compiled: bool = True
    rate: tf.Tensor | None = None
    discounts: tuple[Discount, ...] = ()
    by_rows: bool = False
    loss_scale: tf.Tensor | None = None
    workers: Any = 1

    def for_inner_optimizer(self, wrapper: OptimizerWrapper) -> UpdateContext:
        """Return the context for the inner optimizer of a wrapper."""
        if isinstance(wrapper, SparseUpdates):
            return replace(self, by_rows=True)
        if not isinstance(wrapper, StalenessAware):
            return self
        return replace(self, discounts=(*self.discounts, wrapper.discount))

    def prepare(self, optimizer: Any) -> Any:
        """Set the rate and the staleness of this update in a temporary copy of an optimizer.

        Returns:
            The same object, changed.
        """
        if isinstance(optimizer, WorkerStateMixin):
            optimizer.__dict__["push_staleness"] = PushStaleness(self.staleness, self.workers)
        if self.rate is not None:
            optimizer.__dict__["_learning_rate"] = self.rate
        if self.discounts:
            rate = tf.convert_to_tensor(optimizer.learning_rate)
            for discount in self.discounts:
                rate = rate * tf.cast(discount(tf.cast(self.staleness, tf.float32)), rate.dtype)
            optimizer.__dict__["_learning_rate"] = rate
        return optimizer


class ServerUpdate:
    """Traces an optimizer's update on the servers; `StatePlacement` moves its state there.

    An elementwise optimizer updates a slab as one vector: a copy of the optimizer gets one Keras
    variable whose value is the slab, with matching slots, and runs its own `apply` on that.

    Tensors that an optimizer has for each worker are on the servers too; they are not saved.

    Args:
        optimizer: a built Keras optimizer of any class.
        storage: creates variables and slabs on servers.
        strategy: the strategy that the optimizer uses.
        workers: the number of workers whose gradients are applied separately; 0 if they are applied
            together, so that nothing is stale.
    """

    def __init__(
        self,
        optimizer: Any,
        *,
        storage: SlabStorage,
        strategy: tf.distribute.Strategy,
        workers: int = 0,
    ) -> None:
        self.optimizer = optimizer
        for leaf in get_leaf_optimizers(optimizer):
            refuse_slots_in_dictionary(leaf)
        refuse_inexact_shard_updates(optimizer)
        placement = StatePlacement(storage)
        for member in get_nested_optimizers(optimizer):
            member.__dict__["_distribution_strategy"] = strategy
            placement.place(member)
        self._targets = {
            id(leaf): UpdateTargets(optimizer, leaf, storage=storage)
            for leaf in get_leaf_optimizers(optimizer)
            if leaf._trainable_variables
        }
        self._memories = {
            id(leaf): WorkerMemory(
                self._targets[id(leaf)].get_all(),
                slot=leaf.per_worker_slot,
                name=optimizer.name,
                workers=workers - 1,  # the slot is that of worker 0
                storage=storage,
            )
            for leaf in get_leaf_optimizers(optimizer)
            if workers > 1 and id(leaf) in self._targets
            if isinstance(leaf, WorkerStateMixin) and leaf.per_worker_slot is not None
        }
        self._trained_ids = [id(v) for v in optimizer._trainable_variables]
        refuse_inexact_server_updates(optimizer)
        if not workers:
            self._refuse_without_workers()

    def is_current_for(self, optimizer: Any) -> bool:
        """Return whether an optimizer still trains the same variables in the same places."""
        return [id(v) for v in optimizer._trainable_variables] == self._trained_ids and all(
            targets.is_current for targets in self._targets.values()
        )

    @property
    def depends_on_sender(self) -> bool:
        """Whether the update depends on the worker that sent the gradients."""
        return bool(self._memories)

    def is_maskable(self, names: Collection[str], *, device: str) -> bool:
        """Return whether XLA can compile one server's update with a mask instead of a condition.

        Args:
            names: the names of the variables and slabs that get gradients.
            device: the server.
        """
        leaf = self.optimizer
        if (
            get_leaf_optimizers(leaf) != [leaf]
            or id(leaf) not in self._targets
            or self.depends_on_sender
        ):
            return False
        gradients = dict.fromkeys(names)
        targets = self._targets[id(leaf)].get_targets_on(device, gradients)
        present = [target for target in targets if target.name in gradients]
        return (
            len(present) == len(gradients)
            and may_be_compiled(leaf)
            and _is_worth_compiling(present)
            and _count_items(present) <= MAX_MASKED_ITEMS
        )

    def trace_learning_rate(self) -> tf.Tensor:
        """Trace the learning rate of the next update, which may run a user's schedule."""
        return tf.convert_to_tensor(self.optimizer.learning_rate)

    def reset_worker_states(self) -> None:
        """Reset the state of all workers; called on the coordinator, with drained workers."""
        for memory in self._memories.values():
            memory.clear()

    def iter_scalars(self) -> Iterator[Any]:
        """Yield the scalars of the optimizer, as Keras variables."""
        for member in get_nested_optimizers(self.optimizer):
            for value in member.__dict__.values():
                if isinstance(value, keras.Variable) and value.shape == ():
                    yield value

    def refresh_mirrors(self) -> None:
        """Copy scalars to their mirrors, after a load or restore."""
        for scalar in self.iter_scalars():
            scalar._value.refresh_mirrors()

    def apply(self, gradients: Mapping[str, tf.Tensor], context: UpdateContext) -> None:
        """Trace the update of one server's variables.

        Args:
            gradients: name of a variable on this server, or of a slab instead of all variables in
                it -> gradient; dense, or `tf.IndexedSlices` with each row at most once. With loss
                scaling they are already divided.
            context: the context of the update.
        """
        with private.default_replica_context():
            self._apply(self.optimizer, gradients, context)

    def _apply(
        self, optimizer: Any, gradients: Mapping[str, tf.Tensor], context: UpdateContext
    ) -> None:
        device = context.device
        if isinstance(optimizer, OptimizerWrapper):
            self._apply(
                optimizer.inner_optimizer, gradients, context.for_inner_optimizer(optimizer)
            )
            return
        if isinstance(optimizer, MultiOptimizer):
            for inner in optimizer.optimizers:
                if inner.built and device in get_devices(inner):
                    self._apply(inner, gradients, context)
            if device in optimizer._iterations._value.devices:
                optimizer._iterations._value.assign_add(1)
            return
        if isinstance(optimizer, LossScaleOptimizer):
            self._apply_finite(optimizer, gradients, context)
            return
        gradients = self._targets[id(optimizer)].split_slab_gradients(gradients)
        targets = self._targets[id(optimizer)].get_targets_on(device, gradients)
        present = [target for target in targets if target.name in gradients]
        together = may_share_slabs(self.optimizer, optimizer)
        rows = gather_rows(present, gradients, together=together) if context.by_rows else []
        whole = [target for target in present if not any(target.name in r.names for r in rows)]
        values = [to_dense(gradients[target.name]) for target in whole]
        values += [each.gradient for each in rows]
        others = [target for target in targets if target.name not in gradients]
        present = [*whole, *(each.temporary_target for each in rows)]
        targets = [*others, *present]
        variables = [target.variable for target in present]
        restricted = context.prepare(self._restrict_to_targets(optimizer, targets))
        may_be = context.may_be_compiled and may_be_compiled(optimizer)
        if isinstance(optimizer, WorkerStateMixin) and optimizer.has_long_formula:
            is_worth_it = context.may_be_compiled and _is_worth_compiling(present)
            restricted.__dict__["is_compiled"] = is_worth_it
        apply = _choose_apply(restricted, present, may_be_compiled=may_be)
        memory = self._memories.get(id(optimizer))
        if memory is not None and context.sender is not None:
            slot, place = optimizer.per_worker_slot, context.sender - 1
            restricted.__dict__["sender_states"] = {
                restricted._var_key(target.variable): SenderState(
                    memory, target, target.slots[slot], place
                )
                for target in present
            }
        apply(values, variables)
        for each in rows:
            each.write_back()

    def _apply_finite(
        self, optimizer: Any, gradients: Mapping[str, tf.Tensor], context: UpdateContext
    ) -> None:
        """Trace the update in a `LossScaleOptimizer`, which skips gradients that are not finite."""

        def apply(*_: Any, **__: Any) -> None:
            inner = optimizer.inner_optimizer
            self._apply(inner, gradients, replace(context, may_be_compiled=False))

        copy = _shallow_copy(optimizer)
        accept_unscaled_gradients(copy, SimpleNamespace(apply=apply), scale=context.loss_scale)
        copy._common_apply(
            [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients.values()]
        )

    def _restrict_to_targets(self, leaf: Any, targets: Sequence[UpdateTarget]) -> Any:
        """Return a shallow copy of an optimizer that has only one server's targets and slots."""
        copy = _shallow_copy(leaf)
        attributes = copy.__dict__
        keys = [copy._var_key(target.variable) for target in targets]
        attributes["_trainable_variables"] = [target.variable for target in targets]
        attributes["_trainable_variables_indices"] = {key: i for i, key in enumerate(keys)}
        attributes["_exclude_from_weight_decay_cache"] = {
            key: target.decays for key, target in zip(keys, targets, strict=True)
        }
        attributes["_distribution_strategy"] = InPlaceStrategy
        attributes["_all_reduce_sum_gradients"] = list
        for name, _ in iter_slots(leaf):
            attributes[name] = [target.slots[name] for target in targets]
        if clips_on_worker(self.optimizer):
            attributes["clipnorm"] = None
        if leaf.global_clipnorm and len(get_devices(leaf)) > 1:
            attributes["global_clipnorm"] = None  # the worker has clipped: it sees the whole model
        return copy

    def _refuse_without_workers(self) -> None:
        for leaf in get_leaf_optimizers(self.optimizer):
            if isinstance(leaf, WorkerStateMixin):
                raise ConfigError(f"optimizer: {together_problem(type(leaf).__name__)}")


def _is_worth_compiling(targets: Sequence[UpdateTarget]) -> bool:
    if not all(target.is_slab for target in targets):
        return False
    return _count_items(targets) >= MIN_COMPILED_ITEMS


def _count_items(targets: Sequence[UpdateTarget]) -> int:
    return sum(int(target.variable.shape.num_elements()) for target in targets)


def _choose_apply(optimizer: Any, targets: Sequence[UpdateTarget], *, may_be_compiled: bool) -> Any:
    """Return the function that applies gradients to the targets: compiled, plain, or counting."""
    if not targets:
        return functools.partial(_count_empty_update, optimizer)
    if may_be_compiled and _is_worth_compiling(targets):
        return functools.partial(apply_compiled, optimizer)
    return optimizer.apply


def _count_empty_update(optimizer: Any, gradients: Any, trainable_variables: Any) -> None:
    """Count an update whose gradients are all on other servers: Keras skips empty updates."""
    del gradients, trainable_variables
    optimizer._iterations.assign_add(1)


def _shallow_copy(optimizer: Any) -> Any:
    copy = object.__new__(type(optimizer))
    copy.__dict__.update(optimizer.__dict__)
    return copy
