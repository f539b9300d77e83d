"""Creates the variables and slabs of one job on its servers, and plans their locations."""

from __future__ import annotations

import dataclasses
import functools
import gc
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.variables.named_resource import NamedResource
from tfps.bridge.variables.resource_holder import V
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.bridge.variables.sharded_variable import ShardedVariable
from tfps.bridge.variables.view_variable import SlabVariable, ViewVariable
from tfps.errors import ConfigError
from tfps.partitioners.row_rule import RowRule, rule_name
from tfps.partitioners.variable_spec import ITEM_BYTES
from tfps.placement.plan import Plan, View
from tfps.placement.slab import SlabLayout
from tfps.runtime.coordinator.control_plane import is_bringing_back
from tfps.runtime.coordinator.resource_names import BOOKKEEPING, SLABS, VARIABLES, ResourceNames
from tfps.runtime.coordinator.server_contents import ServerContents
from tfps.transport.chunk import chunk_bytes_from_environment

# A garbage collection takes about half a second.
COLLECTED_BYTES = 32 << 20


class Storage:
    """Creates variables on servers and frees those without references."""

    def __init__(self, *, container: str, servers: Sequence[str]) -> None:
        self.container, self._servers = container, tuple(servers)
        self.contents = [ServerContents(device=d, container=container) for d in servers]
        self.on_access: Callable[[], None] = lambda: None
        # Called after bookkeeping was created, and before the old places of moved variables are
        # freed.
        self.on_layout_change: Callable[[], None] = lambda: None
        self.fence: Callable[[], None] = lambda: None  # raises if another chief has the job
        self.has_run = False  # whether steps have run since the last garbage collection
        self.layouts = 0  # the count of moves of variables; each makes earlier traces out of date
        self._names = ResourceNames()
        self._views: dict[str, View] = {}
        self._finalizers: dict[str, weakref.finalize[..., Any]] = {}
        self._unreferenced: deque[str] = deque()
        self._freed_bytes = 0  # since servers gave memory back to their systems
        self._bytes = [0] * len(self._servers)  # of all views

    def is_mirrored(self, path: str) -> bool:
        """Return whether workers mirror the variable of a path."""
        return False

    @property
    def bytes_per_server(self) -> tuple[int, ...]:
        """The bytes that each server holds; computed without a loop over thousands of variables."""
        loads = list(self._bytes)
        for name in set(self._unreferenced.copy()):
            view = self._views.get(name)
            if view is not None:
                loads[view.server] -= view.size_bytes
        return tuple(loads)

    @property
    def plan(self) -> Plan:
        """The plan: the server of each variable."""
        # A finalizer may run at any moment, so iterate over a copy, made in one operation.
        forgotten = set(self._unreferenced.copy())
        views = [view for name, view in self._views.copy().items() if name not in forgotten]
        return Plan(servers=len(self._servers), views=tuple(views))

    def get_views(self, server: int) -> dict[str, View]:
        """Return the views of a server's variables, by the names of their resources."""
        return {name: view for name, view in self._views.copy().items() if view.server == server}

    def create_variable(
        self,
        initial_value: Any,
        *,
        device: str,
        planned: bool = True,
        path: str | None = None,
        replaces: ServerVariable | None = None,
        rule: RowRule | None = None,
        **options: Any,
    ) -> ServerVariable:
        """Create a named variable on a server.

        A ``planned`` variable is in the plan, under its ``path`` or else its name; the transport's
        own are not. It takes over the name of a freed variable that it ``replaces``. A shard has
        the ``rule`` of its rows.
        """
        if planned:
            self.make_room()
        path = path or options.get("name") or "variable"
        is_ours = replaces is not None and replaces.container == self.container
        if replaces is not None and is_ours and replaces.shared_name in self._finalizers:
            shared_name = replaces.shared_name
            self._finalizers.pop(shared_name).detach()
            self._remove(shared_name)
        else:
            shared_name = self._names.unique_name(path, kind=VARIABLES if planned else BOOKKEEPING)
            # On the server where the job has it, even if the placement of a rebuilt program
            # differs.
            device = next((c.device for c in self.contents if shared_name in c.held), device)
        variable = self._create(
            ServerVariable,
            initial_value,
            device=device,
            shared_name=shared_name,
            in_checkpoints=planned,
            chunk_bytes=chunk_bytes_from_environment(),
            **options,
        )
        if planned:
            dtype = variable.dtype.name
            view = self._views[shared_name] = View(
                variable=path,
                server=self.get_server_index(device),
                slab=shared_name,
                offset_items=0,
                shape=tuple(variable.shape),
                dtype=dtype,
                item_bytes=ITEM_BYTES.get(dtype, variable.dtype.size),
                rule=None if rule is None else (rule_name(rule), rule.rows, rule.shards),
                is_mirrored=bool(options.get("trainable")) and self.is_mirrored(path),
            )
            self._bytes[view.server] += view.size_bytes
        else:
            self.on_layout_change()
        return variable

    def create_bookkeeping(
        self, initial_value: Any, *, device: str, name: str, **options: Any
    ) -> ServerVariable:
        """Create a variable for tfps itself, which is in no plan and in no checkpoint."""
        return self.create_variable(
            initial_value, device=device, planned=False, trainable=False, name=name, **options
        )

    def _create(
        self, kind: type[V], initial_value: Any, *, device: str, shared_name: str, **options: Any
    ) -> V:
        variable = self.contents[self.get_server_index(device)].create(
            kind, initial_value, shared_name=shared_name, on_access=self._on_eager_access, **options
        )
        self._free_after_collection(variable, shared_name)
        return variable

    def create_sharded(
        self,
        shards: Sequence[Any],
        *,
        rule: RowRule,
        device_of: Callable[[int], str],
        path: str,
        **options: Any,
    ) -> ShardedVariable:
        """Create a variable with rows on several servers; ``device_of`` returns each shard's."""
        name, trainable = options.pop("name", None) or "variable", options.pop("trainable", True)
        natives = [
            self.create_variable(
                shard,
                device=device_of(number),
                path=f"{path}/{number}",
                rule=rule,
                name=f"{name}_{number}",
                trainable=False,  # tapes watch the whole
                **options,
            )
            for number, shard in enumerate(shards)
        ]
        options.pop("dtype", None)  # that of the shards
        options |= {"path": path, "name": name, "trainable": trainable}
        return ShardedVariable(
            natives, rule=rule, unique_id=self._names.unique_name(path), **options
        )

    def create_slab(
        self, variables: Sequence[ServerVariable], *, layout: SlabLayout, name: str, fill_gaps: bool
    ) -> tuple[SlabVariable, list[ViewVariable]]:
        """Move variables of one server into a slab, with their values, and free their old places.

        They come in the order of the layout; the returned views replace them. If ``fill_gaps``, a
        variable's first item is repeated in the gap behind it instead of zeros, for state that an
        optimizer divides by.
        """
        self.on_layout_change()  # all variables are created: they may be the job's
        self.layouts += 1
        device = variables[0].device
        slab = self._create(
            SlabVariable,
            lambda: _concat_into_slab(variables, layout, fill_gaps=fill_gaps),
            device=device,
            shared_name=self._names.unique_name(name, kind=SLABS),
            in_checkpoints=True,
            layout=layout,
            name=name,
        )
        if fill_gaps:  # checkpoints do not have the gaps
            ones = functools.partial(tf.ones, slab.shape, slab.dtype)
            self.contents[self.get_server_index(device)].add_variable(slab, initial_value=ones)
        views = []
        shared_names = [variable.shared_name for variable in variables]
        for old, member in zip(variables, layout.members, strict=True):
            view = ViewVariable(slab, member=member, replaces=old)
            self._finalizers.pop(old.shared_name).detach()
            self._free_after_collection(view, old.shared_name)
            planned = self._views.get(old.shared_name)
            if planned is not None:
                self._views[old.shared_name] = dataclasses.replace(
                    planned, slab=slab.shared_name, offset_items=member.offset_items
                )
            views.append(view)
        self.on_layout_change()
        for shared_name in shared_names:
            self._free(shared_name)
        return slab, views

    def mirror(self, variable: ServerVariable, devices: tuple[str, ...]) -> None:
        """Keep copies of a variable on other servers."""
        variable.create_mirrors(devices)
        for device in variable.devices[1:]:
            self.contents[self.get_server_index(device)].add_variable(variable)
        self.on_layout_change()

    def free(self, variable: ServerVariable) -> None:
        """Free the value of a variable, or of its shards, while the variable still exists."""
        for native in getattr(variable, "variables", [variable]):
            if native.container == self.container:  # another job may have one of the same name
                self._free(native.shared_name)

    def _free_after_collection(self, variable: ServerVariable, shared_name: str) -> None:
        # Runs during garbage collection, so it only takes a note; `collect` frees.
        record = self._unreferenced.append
        self._finalizers[shared_name] = weakref.finalize(variable, record, shared_name)

    @property
    def has_mismatches(self) -> bool:
        """Whether the program creates other variables than the job that it continues."""
        return any(contents.mismatches for contents in self.contents)

    def refuse_mismatches(self) -> None:
        """Raise `ConfigError` with all variables that differ from those on the servers."""
        problems = [
            f"job: {mismatch}" for contents in self.contents for mismatch in contents.mismatches
        ]
        if problems:
            problems[-1] += (
                ". The job is unchanged. Continue with the same model, discard the job with "
                "job=tfps.Job(name, fresh=True), or give this job another name"
            )
            raise ConfigError(problems, source="ParameterServerStrategy")

    def collect(self) -> None:
        """Free the variables without references, unless the program has another model."""
        held_bytes = sum(self._bytes)
        while self._unreferenced and not self.has_mismatches:
            shared_name = self._unreferenced.popleft()
            self._finalizers.pop(shared_name, None)
            self._remove(shared_name)
        self._freed_bytes += held_bytes - sum(self._bytes)

    def make_room(self) -> None:
        """Free the variables that models have left without references, before more are created.

        Python's collector does not know how much memory its objects have on servers, so it runs
        here once after each run of steps: a model that was dropped after it lies in cycles.
        """
        if self.has_run and sum(self._bytes) >= COLLECTED_BYTES:
            self.has_run = False
            gc.collect()
        self.collect()

    def _remove(self, shared_name: str) -> None:
        """Remove a name from the plan, and free its resource, if it has memory of its own."""
        view = self._views.pop(shared_name, None)
        if view is not None:
            self._bytes[view.server] -= view.size_bytes
        self._free(shared_name)

    def _free(self, shared_name: str) -> None:
        for contents in self.contents:
            contents.free([NamedResource(self.container, shared_name, contents.device)])

    def _on_eager_access(self) -> None:
        if not is_bringing_back():  # no closure runs then
            self.on_access()
            self.refuse_mismatches()
            self.fence()

    def get_server_index(self, device: str) -> int:
        """Return the index of a server from its device."""
        return self._servers.index(device)


def _concat_into_slab(
    variables: Sequence[ServerVariable], layout: SlabLayout, *, fill_gaps: bool
) -> tf.Tensor:
    """Concatenate the values of variables into the vector of a slab, on their server."""
    ends = [member.offset_items for member in layout.members[1:]] + [layout.items]
    parts = []
    for variable, member, end in zip(variables, layout.members, ends, strict=True):
        flat = tf.reshape(variable.read_value(), [member.items])
        parts.append(flat)
        padding = end - member.offset_items - member.items
        if padding:
            in_gap = flat[0] if fill_gaps and member.items else tf.zeros([], flat.dtype)
            parts.append(tf.fill([padding], in_gap))
    return tf.concat(parts, 0)
