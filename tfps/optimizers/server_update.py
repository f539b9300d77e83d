"""A Keras optimizer's own update, run inside a server function on the variables of that server."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer
from keras.src.optimizers.multi_optimizer import MultiOptimizer

from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.bridge.variables.shards import cut, rule_of, shards_of
from tfps.consistency.optimizer_limits import together_problem
from tfps.errors import ConfigError
from tfps.optimizers.by_shard import refuse_inexact_on_servers, refuse_inexact_on_shards
from tfps.optimizers.corrected import Corrected, Memories
from tfps.optimizers.discount import Discount
from tfps.optimizers.elementwise import (
    apply_compiled,
    clips_on_worker,
    may_be_compiled,
    may_share_slabs,
)
from tfps.optimizers.gathered_rows import densified, gathered
from tfps.optimizers.in_place import InPlace
from tfps.optimizers.loss_scaling import for_divided
from tfps.optimizers.remembering import Remembering
from tfps.optimizers.row_updates import RowUpdates
from tfps.optimizers.slabs import SlabStorage
from tfps.optimizers.staleness_aware import StalenessAware
from tfps.optimizers.update_targets import UpdateTarget, UpdateTargets
from tfps.optimizers.worker_memory import WorkerAt
from tfps.optimizers.wrapped import devices_of, leaves, members, slot_lists
from tfps.optimizers.wrapper import Wrapper

# A push in one kernel writes old values back where a condition would leave them. At 100,000 items
# it saves a server a quarter of its CPU time and a fifth of the context switches, at a million a
# fifteenth and a seventh.
MASKED_ITEMS = 1 << 20

# XLA takes a tenth of a second to compile an update, and saves Adam a third of the time on 64,000
# items and half on a million; on 16,000 it saves nothing.
COMPILED_ITEMS = 1 << 15


@dataclass(frozen=True)
class UpdateContext:
    """Where a gradient came, whose it is, and what the learning rate of its update depends on.

    Args:
        device: the server whose function is traced.
        staleness: int64 scalar, updates that this server has applied since the parameters were
            read that the gradients come from.
        sender: who computed them; None: nobody in particular, so nothing is stale.
        may_be_compiled: whether XLA may compile it; False where it compiles all around it anyway.
        rate: the learning rate, where it was computed before; None: the optimizer's own.
        discounts: of the wrappers around the optimizer.
        by_rows: only rows of the gradients came.
        loss_scale: that they were multiplied by, and are divided by already; None: the optimizer's.
    """

    device: str
    staleness: tf.Tensor
    sender: WorkerAt | None = None
    may_be_compiled: bool = True
    rate: tf.Tensor | None = None
    discounts: tuple[Discount, ...] = ()
    by_rows: bool = False
    loss_scale: tf.Tensor | None = None

    def within(self, wrapper: Wrapper) -> UpdateContext:
        """The same inside of one more wrapper."""
        if isinstance(wrapper, RowUpdates):
            return replace(self, by_rows=True)
        if not isinstance(wrapper, StalenessAware):
            return self
        return replace(self, discounts=(*self.discounts, wrapper.discount))

    def with_rate(self, optimizer: Any) -> Any:
        """Give a copy of an optimizer the rate of this update; what is not discounted stays."""
        if self.rate is not None:
            optimizer.__dict__["_learning_rate"] = self.rate
        if self.discounts:
            rate = tf.convert_to_tensor(optimizer.learning_rate)
            for discount in self.discounts:
                rate = rate * tf.cast(discount(tf.cast(self.staleness, tf.float32)), rate.dtype)
            optimizer.__dict__["_learning_rate"] = rate
        return optimizer


class ServerUpdate:
    """Settles an optimizer's state on the servers and traces its update there.

    The slots of a variable lie on the variable's server. What an optimizer has once (iterations,
    learning rate, Nadam's product, a loss scale) has a home on one server and a mirror on every
    other that holds one of its variables; all of them see the same updates.

    An elementwise optimizer updates a slab as one vector: a copy of it is given one Keras variable
    whose value is the slab, with slots to match, and runs its own `apply` on that.

    What an optimizer has for each worker lies there too, and is no part of its state.

    Args:
        optimizer: a built Keras optimizer of any class.
        storage: makes variables and slabs on servers.
        strategy: what the optimizer shall think that it runs under.
        workers: whose gradients are applied each by itself; 0: nobody's, so nothing is stale.
        replies: answers of a server that count for a worker: 2 where its steps are pipelined.
    """

    def __init__(
        self,
        optimizer: Any,
        *,
        storage: SlabStorage,
        strategy: tf.distribute.Strategy,
        workers: int = 0,
        replies: int = 1,
    ) -> None:
        self.optimizer = optimizer
        self._storage = storage
        refuse_inexact_on_shards(optimizer)
        for member in members(optimizer):
            member.__dict__["_distribution_strategy"] = strategy
            self._place_state(member)
        self._units = {
            id(leaf): UpdateTargets(optimizer, leaf, storage=storage)
            for leaf in leaves(optimizer)
            if leaf._trainable_variables
        }
        self._memories = {
            id(leaf): Memories(
                optimizer,
                leaf,
                self._units[id(leaf)],
                workers=workers,
                replies=replies,
                storage=storage,
            )
            for leaf in leaves(optimizer)
            if workers and id(leaf) in self._units
        }
        self._placed = [id(v) for v in optimizer._trainable_variables]
        refuse_inexact_on_servers(optimizer)
        if not workers:
            self._refuse_without_workers()

    def fits(self, optimizer: Any) -> bool:
        """Whether the optimizer still trains the variables that it was made for, where they lay."""
        return [id(v) for v in optimizer._trainable_variables] == self._placed and all(
            targets.are_current for targets in self._units.values()
        )

    @property
    def asks_who(self) -> bool:
        """Whether the update depends on whose gradients it applies."""
        return not all(memories.are_empty for memories in self._memories.values())

    @property
    def asks_what_is_known(self) -> bool:
        """Whether the update depends on what a worker was answered."""
        return any(memories.are_handed_out for memories in self._memories.values())

    def is_maskable(self, names: Collection[str], *, device: str) -> bool:
        """Whether the update of one server can be part of a kernel that does it or does not.

        Args:
            names: of the variables and slabs that gradients come for.
            device: the server.
        """
        leaf = self.optimizer
        if leaves(leaf) != [leaf] or id(leaf) not in self._units or self.asks_who:
            return False
        gradients = dict.fromkeys(names)
        targets = self._units[id(leaf)].on(device, gradients)
        present = [target for target in targets if target.name in gradients]
        return (
            len(present) == len(gradients)
            and may_be_compiled(leaf)
            and _is_worth_compiling(present)
            and _items_of(present) <= MASKED_ITEMS
        )

    def rate(self) -> tf.Tensor:
        """Trace the learning rate of the next update; users write the schedules."""
        return tf.convert_to_tensor(self.optimizer.learning_rate)

    def hand_out(
        self, names: Collection[str], sender: WorkerAt, *, device: str, is_first: bool
    ) -> None:
        """Trace that a worker is handed values of one server; under the server's mutex.

        Args:
            names: of variables and slabs, also of other optimizers.
            sender: the worker, and the version of the values.
            device: the server whose function is traced.
            is_first: it holds nothing older, because it has just entered.
        """
        for memories in self._memories.values():
            memories.hand_out(names, sender, device=device, is_first=is_first)

    def forget_workers(self) -> None:
        """Let all workers begin as new ones; called on the coordinator, with drained workers."""
        for memories in self._memories.values():
            memories.clear()

    def scalars(self) -> Iterator[Any]:
        """What the optimizer has once, as Keras variables."""
        for member in members(self.optimizer):
            for value in member.__dict__.values():
                if isinstance(value, keras.Variable) and value.shape == ():
                    yield value

    def refresh_mirrors(self) -> None:
        """After a load or restore: the mirrors follow their home."""
        for scalar in self.scalars():
            scalar._value.refresh_mirrors()

    def apply(self, gradients: Mapping[str, tf.Tensor], context: UpdateContext) -> None:
        """Trace the update of one server's variables.

        Args:
            gradients: by the name of a variable on this server, or of a slab instead of all of the
                variables in it; `tf.IndexedSlices` of which each row comes once, or dense. Of a
                scaled loss they are divided already.
            context: of the update.
        """
        with private.default_replica_context():
            self._apply(self.optimizer, gradients, context)

    def _apply(
        self, optimizer: Any, gradients: Mapping[str, tf.Tensor], context: UpdateContext
    ) -> None:
        device = context.device
        if isinstance(optimizer, Wrapper):
            self._apply(optimizer.inner_optimizer, gradients, context.within(optimizer))
            return
        if isinstance(optimizer, MultiOptimizer):
            for inner in optimizer.optimizers:
                if inner.built and device in devices_of(inner):
                    self._apply(inner, gradients, context)
            if device == optimizer._iterations._value.device:
                optimizer._iterations._value.assign_add(1)
            return
        (leaf,) = leaves(optimizer)
        gradients = self._units[id(leaf)].understood(gradients)
        targets = self._units[id(leaf)].on(device, gradients)
        present = [target for target in targets if target.name in gradients]
        if isinstance(optimizer, LossScaleOptimizer):
            for wrapper in members(optimizer.inner_optimizer)[:-1]:
                context = context.within(wrapper)
        together = may_share_slabs(self.optimizer, leaf)
        rows = gathered(present, gradients, together=together) if context.by_rows else []
        whole = [target for target in present if not any(target.name in r.names for r in rows)]
        values = [densified(gradients[target.name]) for target in whole]
        values += [each.gradient for each in rows]
        others = [target for target in targets if target.name not in gradients]
        present = [*whole, *(each.target for each in rows)]
        targets = [*others, *present]
        variables = [target.variable for target in present]
        restricted = context.with_rate(self._restricted(leaf, targets))
        may_be = optimizer is leaf and context.may_be_compiled and may_be_compiled(leaf)
        apply = _apply_of(restricted, present, may_be_compiled=may_be)
        memories = self._memories.get(id(leaf))
        applied: Any = SimpleNamespace(apply=apply)
        if memories is not None and not memories.are_empty and context.sender is not None:
            applied = Corrected(
                restricted, apply=apply, memories=memories, targets=present, sender=context.sender
            )
        if isinstance(optimizer, LossScaleOptimizer):
            copy = _shallow_copy(optimizer)
            for_divided(copy, applied, scale=context.loss_scale)
            copy._common_apply(values, variables)
        else:
            applied.apply(values, variables)
        for each in rows:
            each.write_back()

    def _restricted(self, leaf: Any, targets: Sequence[UpdateTarget]) -> Any:
        """A shallow copy that knows one server's update targets only and shares their slots."""
        copy = _shallow_copy(leaf)
        attributes = copy.__dict__
        keys = [copy._var_key(target.variable) for target in targets]
        attributes["_trainable_variables"] = [target.variable for target in targets]
        attributes["_trainable_variables_indices"] = {key: i for i, key in enumerate(keys)}
        attributes["_exclude_from_weight_decay_cache"] = {
            key: target.decays for key, target in zip(keys, targets, strict=True)
        }
        attributes["_distribution_strategy"] = InPlace
        attributes["_all_reduce_sum_gradients"] = list
        for name, _ in slot_lists(leaf):
            attributes[name] = [target.slots[name] for target in targets]
        if clips_on_worker(self.optimizer):
            attributes["clipnorm"] = None
        if leaf.global_clipnorm and len(devices_of(leaf)) > 1:
            attributes["global_clipnorm"] = None  # the worker has clipped: it sees the whole model
        return copy

    def _place_state(self, member: Any) -> None:
        """Move the state of a built optimizer to the servers of its variables."""
        variables = member._trainable_variables
        if not variables:
            return
        devices = tuple(devices_of(member))
        for value in list(member.__dict__.values()):
            if isinstance(value, keras.Variable) and value.shape == ():
                self._move(value, devices[0])
                self._storage.mirror(value._value, devices)
        for _, slots in slot_lists(member):
            for slot, variable in zip(slots, variables, strict=True):
                if slot is not None:
                    self._move_beside(slot, variable)

    def _move_beside(self, slot: Any, variable: Any) -> None:
        """Let a slot be divided as its variable is, shard beside shard."""
        devices = [shard._value.device for shard in shards_of(variable)]
        if len(devices) == 1:
            self._move(slot, devices[0])
            return
        if [shard._value.device for shard in shards_of(slot)] == devices:
            return
        rule = rule_of(variable)
        self._replace(
            slot,
            lambda value, **options: self._storage.create_sharded(
                cut(value, rule), rule=rule, device_of=devices.__getitem__, **options
            ),
        )

    def _move(self, variable: Any, device: str) -> None:
        old = variable._value
        if not isinstance(old, ServerVariable) or old.device != device:
            replaced = old if isinstance(old, ServerVariable) else None
            create = functools.partial(
                self._storage.create_variable, device=device, replaces=replaced
            )
            self._replace(variable, create)

    def _replace(self, variable: Any, create: Callable[..., ServerVariable]) -> None:
        old = variable._value
        value = old.numpy()
        if isinstance(old, ServerVariable):
            self._storage.free(old)  # first: it may have a mirror where the new one will lie
        variable._value = create(
            value,
            dtype=variable._dtype,
            trainable=False,
            name=variable.name,
            path=variable.path,
        )

    def _refuse_without_workers(self) -> None:
        for leaf in leaves(self.optimizer):
            if isinstance(leaf, Remembering):
                raise ConfigError(f"optimizer: {together_problem(type(leaf).__name__)}")


def _is_worth_compiling(targets: Sequence[UpdateTarget]) -> bool:
    if not all(target.is_slab for target in targets):
        return False
    return _items_of(targets) >= COMPILED_ITEMS


def _items_of(targets: Sequence[UpdateTarget]) -> int:
    return sum(int(target.variable.shape.num_elements()) for target in targets)


def _apply_of(optimizer: Any, targets: Sequence[UpdateTarget], *, may_be_compiled: bool) -> Any:
    """How the optimizer updates what a server has gradients of."""
    if not targets:
        return functools.partial(_count_update, optimizer)
    if may_be_compiled and _is_worth_compiling(targets):
        return functools.partial(apply_compiled, optimizer)
    return optimizer.apply


def _count_update(optimizer: Any, gradients: Any, trainable_variables: Any) -> None:
    """Count an update whose gradients are all on other servers; Keras counts none without any."""
    del gradients, trainable_variables
    optimizer._iterations.assign_add(1)


def _shallow_copy(optimizer: Any) -> Any:
    copy = object.__new__(type(optimizer))
    copy.__dict__.update(optimizer.__dict__)
    return copy
